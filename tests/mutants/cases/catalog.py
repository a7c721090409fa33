"""Mutants of `onlyonce/catalog` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    SHARED,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Delete, Never, Replace

MUTANTS = (
    Mutant(
        "chunk-by-its-key",
        "a worker knows a chunk by its key and its number of ids, not by what it holds",
        "onlyonce/catalog/chunks.py",
        Replace("Chunks.visible", "r.ids_hash", "None"),
        Replace("Chunk.of", "ids_hash(packed)", "None"),
        tests=("tests/contract/receive/test_poison.py::test_a_worker_forgets_a_chunk_that_was_taken_back[as many]",),
    ),
    Mutant(
        "torn-file-trusted",
        "a worker trusts a shared file by its name, whatever is in it",
        "onlyonce/catalog/worker_cache.py",
        Replace("_mapped", "held[: _HEADER.size]", "held[:4]"),
        Replace("_mapped", "_header(name, [content])", "MAGIC"),
        tests=(
            SHARED
            + "test_a_file_whose_content_does_not_fit_is_not_trusted_and_written_again[its end was never written]",
        ),
    ),
    Mutant(
        "folder-of-anybody",
        "workers share files in a folder that others can write",
        "onlyonce/catalog/worker_cache.py",
        Never("_opened", "there.st_uid != os.geteuid() or stat.S_IMODE(there.st_mode) & 0o077"),
        tests=(SHARED + "test_a_folder_that_another_user_can_enter_is_not_used[group's too]",),
    ),
    Mutant(
        "file-by-its-count",
        "a shared file is named by the number of ids that are in it, and not by these",
        "onlyonce/catalog/worker_cache.py",
        Replace("_Name.file", "(self.instance, self.of.id_count, hashes)", "(self.instance, self.of.id_count)"),
        tests=(
            "tests/contract/catalog/test_range_filters.py::test_what_is_found_is_what_a_plain_set_has_after_any_history[1]",
        ),
    ),
    Mutant(
        "nearly-in-order",
        "ids are sorted by the upper half of their upper halves alone",
        "onlyonce/catalog/filters.py",
        Replace("_order", 'order[np.argsort(high[order], kind="stable")]', "order"),
        tests=("tests/unit/catalog/test_lookup.py::test_packed_ids_are_sorted_big_endian_and_come_back",),
    ),
    Mutant(
        "no-filter-as-an-empty-one",
        "a chunk without a filter is read as one whose filter is empty",
        "onlyonce/catalog/chunks.py",
        Replace("_rows", "None if size < 0 else bytes(copied[at : at + size])", "bytes(copied[at : at + size])"),
        tests=("tests/contract/catalog/test_binary_copy.py::test_a_chunk_comes_back_byte_by_byte[none]",),
    ),
    Mutant(
        "dropped-bucket-stays-listed",
        "a bucket that goes whole leaves its chunks in the list",
        "onlyonce/catalog/expiry.py",
        Delete("Collector.drop", 'do(self.connection, "gc", "unlist", instance=instance, bucket=gone.bucket)'),
        tests=(
            "tests/contract/operate/test_collect.py::test_the_list_of_chunks_is_that_of_the_catalog_whatever_changes_it",
        ),
    ),
    Mutant(
        "stale-range-filter",
        "a filter over several buckets answers for whatever chunks are in them now, also for those that it does "
        "not have",
        "onlyonce/catalog/range_filters.py",
        Replace("shared", "chunk.ids_hash in hashes", "one.block.first <= chunk.key.bucket <= one.block.last"),
        tests=(
            "tests/contract/catalog/test_range_filters.py::test_a_chunk_that_came_late_or_was_made_again_of_as_many_other_ids_is_asked_by_itself",
            "tests/contract/catalog/test_range_filters.py::test_what_is_found_is_what_a_plain_set_has_after_any_history",
        ),
    ),
    Mutant(
        "maybe-is-yes",
        "a filter's maybe counts as a duplicate",
        "onlyonce/catalog/look_up.py",
        Replace("_Asked._one", "self.found[maybe[held]]", "self.found[maybe]"),
        tests=("tests/contract/catalog/test_textbook_filter.py",),
    ),
)
