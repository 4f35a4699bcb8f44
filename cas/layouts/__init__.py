"""Old layouts: version stores made of folders and `meta.json`, in and out."""
