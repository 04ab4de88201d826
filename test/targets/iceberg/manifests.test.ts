import { expect, test } from "vitest";
import { avroRecords, avroSchema } from "#src/sources/lake/avro.js";
import { manifestEntry, manifestOfAdded } from "#src/targets/iceberg-manifests.js";

const counts = {
  added_files_count: 0,
  existing_files_count: 1,
  deleted_files_count: 1,
  added_rows_count: 0n,
  existing_rows_count: 5n,
  deleted_rows_count: 5n,
};
const facts = {
  formatVersion: 2,
  schema: "{}",
  partitionSpec: "[]",
  specId: 0,
  partition: [{ name: "ds", id: 1000, type: "string" as const, value: "a" }],
};
const numbers = { id: 2n, parent: 1n, sequence: 2n, nextRow: 0n };
const manifest = { manifest_path: "m.avro", content: 0, bytes: Buffer.alloc(1), counts };

test("a manifest whose partitions are not known stays one when files are removed from it: others may be of any partition", () => {
  expect(manifestEntry(facts, numbers, { ...manifest, partitions: null }).partitions).toBeNull();
  expect(manifestEntry(facts, numbers, manifest).partitions).toHaveLength(1);
});

test.each([
  ["ds-day", "ds_x2Dday"],
  ["2nd", "_2nd"],
  ["ds_1", "ds_1"],
  ["tür", "t_xFCr"],
])("a partition by %s has a name that Avro allows, escaped as Iceberg does", (name, due) => {
  const ofName = { ...facts, partition: [{ name, id: 1000, type: "string" as const, value: "a" }] };
  const file = { part: "p", name: "n", uri: "u", rows: 1, sizeBytes: 1, columns: [] };
  const bytes = manifestOfAdded(ofName, [file], { snapshotId: 1n, idOf: () => undefined });
  expect(JSON.stringify(avroSchema(bytes))).toContain(`"name":"${due}"`);
  const [entry] = avroRecords(bytes, () => expect.unreachable());
  expect(entry).toMatchObject({ data_file: { partition: { [due]: "a" } } });
});
