// Reads all of each Arrow file that is named, and tells how each ended: in a process of its own, which may die of it.
import { arrowFooters, verifyArrow } from "#src/formats/arrow/decoder.js";
import { openShards } from "#src/formats/arrow/shards.js";

const ended = [];
for (const path of process.argv.slice(2)) {
  const file = { path, name: path };
  const before = process.cpuUsage();
  let code = "read";
  try {
    const open = openShards();
    for await (const footer of arrowFooters([file], open)) {
      await verifyArrow({ ...file, rows: footer.rows }, open, new AbortController().signal);
    }
  } catch (error) {
    code = error.code ?? error.stack;
  }
  const { user, system } = process.cpuUsage(before);
  ended.push({ path, cpuMs: (user + system) / 1000, code });
}
process.stdout.write(JSON.stringify({ maxRssMb: process.resourceUsage().maxRSS / 1024, ended }));
