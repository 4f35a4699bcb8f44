"""Old layouts: version stores made of folders and `meta.json`, in and out."""

from cas.layouts.exporting import export_layout
from cas.layouts.importing import import_layout
from cas.layouts.results import Exported, Imported, Skipped

__all__ = ["Exported", "Imported", "Skipped", "export_layout", "import_layout"]
