import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";

/** Of WebAssembly's memory. */
const pageBytes = 64 * 1024;

test("a thread without WebAssembly memory profiles as the others do", () => {
  const profile = (first: string): [text: string, hasLoops: boolean] => {
    const code = `import { profileRows, profileText } from "#src/checks/profile/profile.js";
      import { profileLoops } from "#src/checks/profile/profile-loops.js";
      import { doWithoutVectors } from "#src/columns/loops/vectors.js";
      ${first}
      const rows = 5000;
      const special = [NaN, Infinity, -Infinity, -0, 5e-324, -5e-324, 1e300, -1e300];
      const score = Float64Array.from({ length: rows }, (_, row) => special[row % 50] ?? Math.sin(row) * 10 ** (row % 9));
      const id = BigInt64Array.from({ length: rows }, (_, row) => BigInt(row % 3000) - 9n);
      const small = Int8Array.from({ length: rows }, (_, row) => row % 5);
      const valid = Uint8Array.from({ length: rows }, (_, row) => (row % 7 === 0 ? 0 : 1));
      const column = (name, type, data, valid) =>
        ({ name, type, column: { kind: "fixed", elementsPerValue: 1, data, valid } });
      const columns = [column("id", "int64", id), column("score", "float64", score, valid), column("small", "int8", small),
        { name: "wide", type: "uuid", column: { kind: "fixed", elementsPerValue: 2, data: BigUint64Array.from({ length: 2 * rows }, (_, at) => BigInt(at % 70)), valid } }];
      console.log(profileText(profileRows({ rowCount: rows, columns },
        { predicted: [{ name: "score" }, { name: "small" }], carried: ["id"], bins: 60 })));
      console.error(profileLoops().words.buffer.byteLength);`;
    const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" });
    return [stdout, Number(stderr) % pageBytes === 0];
  };

  const [text, hasLoops] = profile("");
  expect([JSON.parse(text), hasLoops]).toMatchObject([{ rows: 5000 }, true]);
  expect(profile("doWithoutVectors();")).toEqual([text, false]);
});
