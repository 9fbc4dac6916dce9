"""Reports: run directories read back, tables and figures, one page."""

from fedfibos.report.page import Report, build_report, html, write_report

__all__ = ["Report", "build_report", "html", "write_report"]
