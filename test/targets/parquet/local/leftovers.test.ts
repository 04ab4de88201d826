import { writeFileSync } from "node:fs";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { spanAt } from "#src/run/plan/spans.js";
import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import { scratch } from "../../../support/job.js";
import {
  beginDrive,
  drive,
  driveFolder,
  drivePlan,
  driveRows,
  driveSpans,
  nothingTold,
  openDriveSink,
} from "../../../support/sink-drive.js";
import { torture } from "../../../support/torture.js";

const leftovers = torture ? 50_000 : 5000;
const living = new Set(["host.1.aa", "other.2.bb", "host.3.cc"]);

function counting(): { fs: FileSystem; unlinked: () => number } {
  let unlinked = 0;
  return {
    fs: {
      ...nodeFileSystem,
      async unlink(path) {
        unlinked += 1;
        await nodeFileSystem.unlink(path);
      },
    },
    unlinked: () => unlinked,
  };
}

test(`the next attempt removes ${leftovers} temporary files of killed attempts, and keeps those of running ones`, async () => {
  const root = join(scratch.path, "disk");
  await mkdir(root);
  await drive({ root, fs: nodeFileSystem, told: nothingTold(), spans: 1 });
  const temporary = join(driveFolder(root), "_infer-batch", drivePlan.runId, "tmp");
  const names = Array.from({ length: leftovers }, (_, index) => `part-${index % 7}.host.${1000 + index}.dead`);
  const all = [...names, ...[...living].map((writer) => `part-0.${writer}`)];
  for (const name of all) {
    writeFileSync(join(temporary, name), "x");
  }
  const { fs, unlinked } = counting();
  await using sink = await openDriveSink(root, fs, { isDead: (writer) => !living.has(writer) });
  const start = performance.now();

  const run = await beginDrive(sink);

  const seconds = (performance.now() - start) / 1000;
  console.info(`${leftovers} leftovers were removed in ${seconds.toFixed(1)} s`);
  expect((await readdir(temporary)).toSorted()).toEqual([...living].map((writer) => `part-0.${writer}`).toSorted());
  // Once each, and two for the probe for hard links: nothing is looked at twice.
  expect(unlinked()).toBe(leftovers + 2);

  for (let span = 1; span < driveSpans; span += 1) {
    await run.commit(spanAt(drivePlan, span), driveRows(span));
  }
  // One for each part, and one for the rejects of a span.
  expect(unlinked()).toBe(leftovers + 2 + driveSpans - 1 + 1);
});
