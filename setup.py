"""The package's files, from the folders that the links of duet/ lead to: a ZIP has no links."""

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

SCRIPTS = ("compare", "detect", "export", "train", "val")
FOLDERS = ("backend", "data", "models", "utils")


class Build(build_py):
    """Take the modules of duet.commands from the top-level scripts."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules = super().find_package_modules(package, package_dir)
        if package == "duet.commands":
            modules = [module for module in modules if module[1] not in SCRIPTS]
            modules += [(package, script, f"{script}.py") for script in SCRIPTS]
        return modules


places = {f"duet.{folder}": folder for folder in FOLDERS}
for folder in FOLDERS:
    for name in find_namespace_packages(folder):  # data/ has no Python in it
        places[f"duet.{folder}.{name}"] = f"{folder}/{name.replace('.', '/')}"
setup(packages=["duet", "duet.commands", *places], package_dir=places, cmdclass={"build_py": Build})
