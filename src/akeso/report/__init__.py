"""What akeso says of a run: as JSON, on a terminal, in a notebook, as a page."""

from akeso.report.document import SCHEMA, run_document, to_json
from akeso.report.page import RunReport

__all__ = ["SCHEMA", "RunReport", "run_document", "to_json"]
