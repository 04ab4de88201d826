"""spark_tables.py FOLDER JARS: small tables that only Spark writes, each with its rows by Spark's own answer, in answers.json.

pip install pyspark==4.0.1; JARS: Iceberg 1.10 and Delta 4.0 for it (spark-pom.xml beside this file).
"""
import glob
import json
import os
import shutil
import sys

from pyspark.sql import SparkSession

folder, jars = os.path.abspath(sys.argv[1]), ",".join(glob.glob(os.path.abspath(sys.argv[2]) + "/*.jar"))
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jars)
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.catalog.ice", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.ice.type", "hadoop")
    .config("spark.sql.catalog.ice.warehouse", folder)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
shutil.rmtree(folder, ignore_errors=True)
answers = {}


def answer(name, query, kind, at):
    """What Spark reads: rows as JSON texts, whose keys are the columns."""
    rows = sorted(spark.sql(f"select to_json(struct(*), map('ignoreNullFields', 'false')) as j from ({query})").collect())
    answers[name] = {"kind": kind, "at": at, "rows": [json.loads(row.j) for row in rows]}


def delta(name):
    return f"delta.`{folder}/{name}`"


def values(first, count, part="''"):
    return f"select id + {first} as id, cast((id + {first}) * 0.5 as float) as x, concat('t', id) as t, {part} as dt from range({count})"


# Delta: deletion vectors, column mapping by name, a rename, a column that is added and one that is dropped, checkpoints
t = delta("mapped")
spark.sql(
    f"create table {t} (id bigint, x float, t string, dt string) using delta partitioned by (dt) tblproperties("
    "'delta.enableDeletionVectors'='true','delta.columnMapping.mode'='name','delta.minReaderVersion'='3',"
    "'delta.minWriterVersion'='7','delta.checkpointInterval'='3')"
)
for k in range(3):
    spark.sql(f"insert into {t} {values(k * 100, 40, repr(f'2026-11-0{k + 1}'))}")
spark.sql(f"delete from {t} where id % 7 = 3")
answer("mapped@4", f"select * from {t} version as of 4", "delta", {"version": 4})
spark.sql(f"alter table {t} rename column x to y")
spark.sql(f"alter table {t} add column z double")
spark.sql(f"alter table {t} drop column t")
spark.sql(f"insert into {t} select id + 500, 1.5f, '2026-11-04', 2.5d from range(5)")
spark.sql(f"delete from {t} where id in (500, 101)")
answer("mapped", f"select * from {t}", "delta", "latest")

# Delta: checkpoints of version 2 with sidecars, types that grew, a NULL and an odd text as partition values
t = delta("checkpointed")
spark.sql(
    f"create table {t} (id int, x float, part string) using delta partitioned by (part) tblproperties("
    "'delta.checkpointPolicy'='v2','delta.enableTypeWidening'='true','delta.checkpointInterval'='2')"
)
spark.sql(f"insert into {t} select cast(id as int), 0.5f, 'a b=c/ü%20' from range(10)")
spark.sql(f"alter table {t} alter column id type bigint")
spark.sql(f"alter table {t} alter column x type double")
spark.sql(f"insert into {t} select id + 3000000000, 0.25d, null from range(10)")
spark.sql(f"insert into {t} select id + 10, 0.75d, '' from range(3)")
answer("checkpointed", f"select * from {t}", "delta", "latest")

# Iceberg: position deletes (2) and deletion vectors (3), a rename, an added and a dropped column, wider types, partitions
for version in (2, 3):
    name = f"ice.ns.v{version}"
    spark.sql(
        f"create table {name} (id int, x float, t string, dt date, d decimal(6, 2)) using iceberg partitioned by (dt, bucket(4, id)) "
        f"tblproperties('format-version'='{version}','write.delete.mode'='merge-on-read','write.update.mode'='merge-on-read')"
    )
    for k in range(2):
        spark.sql(
            f"insert into {name} select cast(id + {k * 100} as int), cast(id * 0.5 as float), concat('t', id), date '2026-11-0{k + 1}', cast(id as decimal(6, 2)) from range(40)"
        )
    spark.sql(f"delete from {name} where id % 7 = 3")
    first = spark.sql(f"select snapshot_id from {name}.snapshots order by committed_at desc limit 1").collect()[0][0]
    answer(f"v{version}@first", f"select * from {name} version as of {first}", "iceberg", {"snapshot": str(first)})
    spark.sql(f"alter table {name} create tag old as of version {first}")
    spark.sql(f"alter table {name} alter column id type bigint")
    spark.sql(f"alter table {name} alter column x type double")
    spark.sql(f"alter table {name} alter column d type decimal(10, 2)")
    spark.sql(f"alter table {name} rename column x to y")
    spark.sql(f"alter table {name} drop column t")
    spark.sql(f"alter table {name} add column z double")
    spark.sql(f"alter table {name} replace partition field dt with days(dt)" if version == 2 else f"alter table {name} drop partition field dt")
    spark.sql(f"insert into {name} select id + 3000000000, 1.5d, date '2026-11-03', 9.25, 2.5d from range(10)")
    spark.sql(f"update {name} set y = -1 where id in (0, 105)")
    spark.sql(f"delete from {name} where id in (1, 2, 3000000000)")
    answer(f"v{version}", f"select * from {name}", "iceberg", {"ref": "main"})
    answer(f"v{version}@tag", f"select * from {name} version as of 'old'", "iceberg", {"ref": "old"})

with open(f"{folder}/answers.json", "w") as file:
    json.dump(answers, file, indent=1)
    file.write("\n")
for path in glob.glob(f"{folder}/**/.*.crc", recursive=True):
    os.remove(path)
