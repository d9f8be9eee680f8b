from utils.results.result import Result


def summary(result: Result, input_size: tuple[int, int] | None = None) -> str:
    return f"{len(result.scores)} found"
