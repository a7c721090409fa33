"""The program that spark-submit starts for `onlyonce.run.stream`."""

from onlyonce.run.stream import cli

if __name__ == "__main__":
    cli()
