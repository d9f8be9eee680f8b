"""Where images and labels come from: dataset YAMLs, folders, lists, record files, annotations."""
