import { readdir, stat, symlink } from "node:fs/promises";
import { join, relative } from "node:path";
import * as fc from "fast-check";
import picomatch from "picomatch";
import { expect, test } from "vitest";
import { scratch } from "../../support/job.js";
import { listDisk, listed, put, refusal } from "../../support/disk-source.js";

test("a pattern matches names and folders that contain a newline", async () => {
  await put(scratch.path, "p/a\nb/c\nd.parquet");

  for (const pattern of ["p/**", "p/**/*.parquet", "p/*/*", "p/a?b/c*"]) {
    expect(await listed(scratch.path, pattern)).toEqual(["p/a\nb/c\nd.parquet"]);
  }
});

test("a pattern matches below the spec's folder, with any characters in its name", async () => {
  const folder = join(scratch.path, "a [1] {b,c} (d)\\e!*");
  await put(folder, "in/a.parquet", "up.parquet");

  expect(await listed(folder, "in/*.parquet")).toEqual(["in/a.parquet"]);
  expect(await listed(join(folder, "in"), "../*.parquet")).toEqual(["../up.parquet"]);
  expect(await listed(folder, "./in/..//*/a.*/")).toEqual(["in/a.parquet"]);
});

test("a pattern matches through links to folders, each followed once on a path", async () => {
  await put(scratch.path, "p/a.parquet", "far/b.parquet", "far/deep/c.parquet", "farther/d.parquet");
  await symlink("../far", join(scratch.path, "p/link"));
  await symlink("deep", join(scratch.path, "far/inside"));
  await symlink("../farther", join(scratch.path, "far/beside"));
  await symlink("..", join(scratch.path, "far/up"));

  expect(await listed(scratch.path, "p/link/*.parquet")).toEqual(["p/link/b.parquet"]);
  expect(await listed(scratch.path, "p/link/*/*.parquet")).toEqual([
    "p/link/beside/d.parquet",
    "p/link/deep/c.parquet",
  ]);
  expect(await listed(scratch.path, "p/**")).toEqual([
    "p/a.parquet",
    "p/link/b.parquet",
    "p/link/beside/d.parquet",
    "p/link/deep/c.parquet",
  ]);
});

test("a pattern with .. after a wildcard is refused", async () => {
  await put(scratch.path, "p/in/a.parquet", "q/b.parquet");

  for (const pattern of ["p/{in,../q}/*", "{p/in,..}/*", "p/*/{..,x}/a", "p/*/../*", "p/**/../../q/*"]) {
    expect(await refusal(() => listDisk(scratch.path, [pattern]))).toMatchObject({ exitCode: 64 });
  }
});

const name = fc.constantFrom("a", "b", "ab", "dt=1", ".h", "_m", "a.b", "x y", "[a]", "é");
const piece = fc.oneof(
  name,
  fc.constantFrom("*", "**", "?", "a*", "[ab]", "{a,b}", "{a,b/a}", "!(a)", ".*", "*.b", "+(a|b)"),
);

test("a pattern lists all files that it matches when each path is tried", async () => {
  let found = 0;
  let trees = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(name, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 12 }),
      fc.array(fc.array(piece, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 8 }),
      async (files, patterns) => {
        trees += 1;
        const folder = join(scratch.path, `${trees}`);
        for (const parts of files) {
          await put(folder, ["in", ...parts].join("/")).catch(() => undefined); // a file in a folder's place
        }
        const entries = await readdir(folder, { recursive: true, withFileTypes: true });
        const all = entries
          .filter((one) => one.isFile())
          .map((one) => relative(folder, join(one.parentPath, one.name)));
        for (const parts of patterns) {
          const pattern = ["in", ...parts].join("/");
          // Plain names, and files in place of folders, are for other tests.
          const named = [pattern, pattern.replace(/\/\*\*.*/, "")].map((path) => isFile(join(folder, path)));
          if (!/[*?[{(]/.test(pattern) || (await Promise.all(named)).includes(true)) {
            continue;
          }
          const expected = all.filter((one) => picomatch.isMatch(one, pattern, { posix: true })).toSorted();
          found += expected.length;
          expect(await listed(folder, pattern), JSON.stringify({ pattern, all })).toEqual(expected);
        }
      },
    ),
    { numRuns: 200 },
  );
  expect(found).toBeGreaterThan(50);
});

async function isFile(path: string): Promise<boolean> {
  return await stat(path).then(
    (found) => found.isFile(),
    () => false,
  );
}
