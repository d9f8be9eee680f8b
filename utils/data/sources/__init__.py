"""Sources of images and labels: dataset YAMLs, folders, lists, record files, annotations."""
