"""Where images and labels come from: folders, list files, record files, annotations."""
