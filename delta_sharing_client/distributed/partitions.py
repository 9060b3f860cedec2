"""The partitions of a plan, as workers receive them."""

from __future__ import annotations

from dataclasses import dataclass, field

from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.job import Part, encode
from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan


@dataclass(frozen=True, kw_only=True)
class Partitions:
    """An encoded plan.

    Attributes:
        job: what all partitions share.
        parts: the partitions; at least one.
        columns: the columns of the rows.
        variant: the form that variants are read in.
    """

    job: bytes = field(repr=False)
    parts: tuple[bytes, ...] = field(repr=False)
    columns: StructType
    variant: VariantForm

    @classmethod
    def of(cls, rest: RestClient, plan: ScanPlan, options: ExecutorOptions) -> Partitions:
        """Divide the files of a plan among partitions, as for Spark.

        Raises:
            SparkError: the plan is too large, or workers may not list URLs.
            DirectoryAccessError: the table is offered by its directory only, and workers have no credential.
        """
        job, parts = encode_plan(rest, plan, options)
        empty = encode(Part(tasks=()))
        return cls(job=job, parts=tuple(parts) or (empty,), columns=plan.spec.output, variant=plan.spec.variant)
