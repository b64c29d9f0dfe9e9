"""download: published files, fetched whole from the web or a store, whatever the server does."""
