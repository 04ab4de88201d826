import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { inspectParquet } from "#src/formats/parquet/inspect.js";
import { scratch, writeSpec } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

const featureNames = Array.from({ length: 10 }, (_, index) => `f${index}`);
const features = featureNames.map((name) => `(row / 10)::DOUBLE AS ${name}`).join(", ");
/** POINT (1 2), as WKB. */
const point = "0101000000000000000000f03f0000000000000040";

test.each([
  { version: "1.0.0", column: { encoding: "WKB", geometry_types: ["Point"] } },
  // As written before version 1: DuckDB's own reading of it refuses the file.
  { version: "0.1.0", column: { encoding: "WKB", geometry_type: "Point" } },
])("a column of geometries of GeoParquet $version is carried as the bytes in the file", async ({ version, column }) => {
  await mkdir(join(scratch.path, "in"));
  const geo = JSON.stringify({ version, primary_column: "place", columns: { place: column } });
  await writeRows(
    join(scratch.path, "in/a.parquet"),
    `SELECT row, from_hex('${point}') AS place, ${features} FROM range(5) AS t(row)`,
    `KV_METADATA {geo: '${geo}'}`,
  );
  const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), {
    input: { path: "in/*.parquet" },
    model: { inputs: { features: featureNames } },
    output: { columns: ["row", "place"] },
  });

  expect(await scoreHere(spec)).toMatchObject({ status: "complete", rowsScored: 5 });

  const places = (await outputRows(join(scratch.path, "out"))).map(({ place }) => String(place));
  expect(new Set(places)).toEqual(
    new Set([String.raw`\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\xF0?\x00\x00\x00\x00\x00\x00\x00@`]),
  );
});

test("a column of geometries is named without the JSON of its coordinate system", async () => {
  const path = join(scratch.path, "a.parquet");
  const crs = JSON.stringify({ type: "ProjectedCRS", name: "it's far", id: { authority: "A", code: 1 } });
  const type = `GEOMETRY('${crs.replaceAll("'", "''")}')`;
  await writeRows(
    path,
    `SELECT 'POINT (1 2)'::${type} AS g, {'in': 'POINT (1 2)'::${type}} AS s`,
    "GEOPARQUET_VERSION V2",
  );

  const { columns } = await inspectParquet(path);

  expect(columns.map((column) => column.type)).toEqual(["GEOMETRY", 'STRUCT("in" GEOMETRY)']);
});
