"""The program that spark-submit starts for `onlyonce.outputs.backfill`."""

from onlyonce.outputs.backfill import cli

if __name__ == "__main__":
    cli()
