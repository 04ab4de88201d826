import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Spool } from "#src/base/spool.js";
import type { Cluster, LeaderOffset } from "#src/sources/kafka/cluster.js";
import { topicSource } from "#src/sources/kafka/source.js";
import type { Listing, Source } from "#src/sources/source.js";
import { scratch } from "../../support/job.js";
import { batch } from "../../support/record-batches.js";

interface Partition {
  readonly topic?: string;
  readonly first?: number;
  readonly stable: number;
  readonly epoch?: number;
  readonly ends?: Readonly<Record<number, number>>;
}

function sourceOf(partitions: readonly Partition[], records?: (partition: number) => Promise<Buffer>): Source {
  const told = (offsetOf: (partition: Partition) => number): Promise<ReadonlyMap<number, LeaderOffset>> =>
    Promise.resolve(
      new Map(
        partitions.map((partition, index) => [index, { offset: offsetOf(partition), epoch: partition.epoch ?? 0 }]),
      ),
    );
  const cluster: Cluster = {
    topic: () =>
      Promise.resolve({
        id: partitions[0]?.topic ?? "id",
        partitions: new Map(partitions.map((_, index) => [index, { leader: 1, epoch: 0 }])),
      }),
    offsets: (at) => told(({ first = 0, stable }) => (at === "earliest" ? first : stable)),
    endOfEpoch: (partition, epoch) => Promise.resolve(partitions[partition]?.ends?.[epoch] ?? -1),
    fetch: async (partition) => ({ logStart: 0, aborted: [], records: await records?.(partition) }),
    commit: () => Promise.reject(new Error("no group")),
    [Symbol.dispose]() {},
  };
  let files = 0;
  const newPath = (): string => join(scratch.path, String((files += 1)));
  const spool = { folder: scratch.path, newPath, prepare: () => Promise.resolve() } as Partial<Spool> as Spool;
  const done = (): Promise<void> => Promise.resolve();
  const [unpack, writeArrow] = [() => new Uint8Array(0), () => ({ begin: done, write: done, end: done })];
  return topicSource({} as Source, {
    topic: "t",
    fields: { columns: {} },
    values: undefined,
    cluster,
    group: "g",
    spool,
    unpack,
    writeArrow,
  });
}

async function since(source: Source, from: string | null, onRewrite: "fail" | "new_files" = "fail"): Promise<Listing> {
  return await source.list(["kafka:t"], { changes: { from, to: null, onRewrite } });
}

const rangesOf = ({ shards }: Listing): string[] => shards.map(({ uri }) => uri.replace("kafka:t/", ""));

describe("a run after another one of a topic", () => {
  test("begins where that has ended, also if a broker did not know of a partition meanwhile", async () => {
    const first = await since(sourceOf([{ stable: 10 }, { stable: 20 }]), null);
    expect(rangesOf(first)).toEqual(["0/0-10", "1/0-20"]);
    const behind = await since(sourceOf([{ stable: 15 }]), first.changes?.to ?? "");
    expect(rangesOf(behind)).toEqual(["0/10-15"]);
    const last = await since(sourceOf([{ stable: 15 }, { stable: 25 }]), behind.changes?.to ?? "");
    expect(rangesOf(last)).toEqual(["1/20-25"]);
  });

  test("fails where records of a partition that came since were removed before they were read", async () => {
    const first = (await since(sourceOf([{ stable: 10 }]), null)).changes?.to ?? "";
    const topic = sourceOf([{ stable: 10 }, { first: 5, stable: 20 }]);
    const message: unknown = expect.stringContaining("5 offsets, from 0 on, were removed from partition 1");
    await expect(since(topic, first)).rejects.toMatchObject({ code: "INPUT_REWRITTEN", message });
    expect(rangesOf(await since(topic, first, "new_files"))).toEqual(["1/5-20"]);
  });

  test("has the range that another attempt has stored, whatever came and went since", async () => {
    const from = (await since(sourceOf([{ stable: 10 }]), null)).changes?.to ?? "";
    const to = (await since(sourceOf([{ stable: 20 }, { stable: 30 }]), from)).changes?.to ?? "";
    const listed = async (topic: readonly Partition[]): Promise<unknown> => {
      const listing = await sourceOf(topic).list(["kafka:t"], { changes: { from, to, onRewrite: "new_files" } });
      return [listing.changes?.to === to, ...rangesOf(listing)];
    };
    const left = (...firsts: number[]): Partition[] => firsts.map((first) => ({ first, stable: 40 }));
    expect(await listed(left(0, 0, 0))).toEqual([true, "0/10-20", "1/0-30"]);
    expect(await listed(left(22, 28))).toEqual([true, "1/28-30"]);
    const gone = { code: "INPUT_REWRITTEN" };
    await expect(listed(left(25, 35))).rejects.toMatchObject(gone);
    await expect(listed([{ stable: 40, epoch: 1, ends: { 0: 15 } }, ...left(0)])).rejects.toMatchObject(gone);
    await expect(listed([{ stable: 40, topic: "anew" }, ...left(0)])).rejects.toMatchObject(gone);
  });

  test("compares the end of the epoch in which the last stable offset was told", async () => {
    const first = await since(sourceOf([{ stable: 50, epoch: 4 }]), null);
    const next = await since(sourceOf([{ stable: 60, epoch: 4, ends: { 0: 40, 4: 60 } }]), first.changes?.to ?? "");
    expect(rangesOf(next)).toEqual(["0/50-60"]);
  });

  test("fails where a partition was cut off, or reads on from there", async () => {
    const first = await since(sourceOf([{ stable: 50 }]), null);
    const cut = sourceOf([{ stable: 60, epoch: 1, ends: { 0: 40 } }]);
    await expect(since(cut, first.changes?.to ?? "")).rejects.toMatchObject({ code: "INPUT_REWRITTEN" });
    const next = await since(cut, first.changes?.to ?? "", "new_files");
    expect(rangesOf(next)).toEqual(["0/40-60"]);
    expect(JSON.parse(next.changes?.to ?? "")).toMatchObject({ offsets: { 0: [60, 1] } });
  });

  test("fails where a partition is cut off while its records are read", async () => {
    const [shard] = (await since(sourceOf([{ stable: 50 }]), null)).shards;
    if (shard === undefined) {
      expect.unreachable();
    }
    await expect((await sourceOf([{ stable: 60, ends: { 0: 50 } }]).open(shard)).check()).resolves.toBeUndefined();
    const cut = sourceOf([{ stable: 60, epoch: 1, ends: { 0: 40 } }]);
    await expect((await cut.open(shard)).check()).rejects.toMatchObject({ code: "INPUT_CHANGED" });
  });
});

test("what cannot be told to a group is no error", async () => {
  const source = sourceOf([{ stable: 10 }]);
  const { table } = await since(source, null);
  const warning = "telling how far topic t is read: no group";
  expect(table && (await source.published(table))).toEqual({ rowsBehind: undefined, newestMs: undefined, warning });
});

test("the newest record that was read is known, whichever of two shards is there first", async () => {
  let letThrough = (): void => undefined;
  let olderMayCome = Promise.resolve();
  const source = sourceOf([{ stable: 1 }, { stable: 1 }], async (partition) => {
    await (partition === 0 ? olderMayCome : undefined);
    return batch({ base: 0, values: ["{}"], timeMs: partition === 0 ? 1000 : 2000 });
  });
  const { table, shards } = await since(source, null);
  olderMayCome = new Promise((resolve) => (letThrough = resolve));
  const [first, second] = (await Promise.all(shards.map((shard) => source.open(shard)))).map(({ remote }) =>
    remote?.fetch([]),
  );
  await second;
  letThrough();
  await first;
  expect(table && (await source.published(table))).toMatchObject({ newestMs: 2000 });
});

test("an offset that no topic has is refused, not cut into shards", async () => {
  const topic = sourceOf([{ stable: 10 }, { stable: 2 ** 53 - 2 }]);
  await expect(since(topic, null)).rejects.toMatchObject({
    code: "TOO_LARGE",
    message: expect.stringMatching(/partition 1.*9007199254740990/),
  });
});
