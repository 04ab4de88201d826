import { describe, expect, test } from "vitest";
import { JsonFields, numberIn } from "#src/sources/kafka/json.js";
import { randomOf } from "../../support/random.js";
import { torture } from "../../support/torture.js";

const names = ["a", 'q"ü', "constructor", "b"];

function read(text: string): Readonly<Record<string, string>> | string {
  const fields = new JsonFields(names);
  const bytes = Buffer.from(`\0${text}\0`);
  const wrong = fields.read(bytes, 1, bytes.length - 1);
  const ends = [...fields.ends];
  return (
    wrong ??
    Object.fromEntries(
      names.flatMap((name, index) => {
        const end = ends[index] ?? 0;
        return end === 0 ? [] : [[name, bytes.toString("utf8", fields.starts[index], end)]];
      }),
    )
  );
}

function expected(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).filter(([name]) => names.includes(name)))
      : undefined;
  } catch {
    return undefined;
  }
}

function expectSame(text: string): void {
  const found = read(text);
  const due = expected(text);
  if (typeof found === "string") {
    expect(due, `${text}: ${found}`).toBeUndefined();
  } else {
    const values = Object.fromEntries(Object.entries(found).map(([name, value]) => [name, JSON.parse(value)]));
    expect(values, text).toEqual(due);
  }
}

describe("the fields of a JSON object", () => {
  test.each([
    "{}",
    " {\t}\r\n",
    '{"a":1}',
    '{"b":[1,{"a":2}],"a":-0.5e+3}',
    '{"a":1,"a":"2"}',
    '{"\\u0061":true,"q\\"\\u00fc":null,"q\\"ü":false}',
    '{"a":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9 é"}',
    '{"constructor":{},"__proto__":1,"toString":[]}',
    "",
    "null",
    "[1]",
    '"a"',
    "{",
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    '{"a":1}}',
    '{"a":1} x',
    '{"a":01}',
    '{"a":1.}',
    '{"a":.5}',
    '{"a":+1}',
    '{"a":1e}',
    '{"a":-}',
    '{"a":NaN}',
    '{"a":tru}',
    '{"a":truex}',
    '{"a":"\n"}',
    '{"a":"\\x"}',
    '{"a":"\\u12g4"}',
    '{"a":"',
    '{"a":"\\',
    '{"a":"\\u00',
    '{"a":[1,]}',
    '{"a":[1 2]}',
    '{"a":{"b":1,}}',
    '{"a":{"b"}}',
    "{a:1}",
    "{'a':1}",
  ])("%s", (text) => {
    expectSame(text);
  });

  test("are those that JSON.parse finds in texts that are changed at random", () => {
    const random = randomOf(7);
    const start = '{"b": [0, -1.5e3, {"x": "\\u00e9\\n"}], "a": "t\\"é", "q\\"ü": {"a": null}, "c": true, "a": 12.5}';
    const pieces = ['"', "\\", ",", ":", "{", "}", "[", "]", "0", "1", "-", ".", "e", "u", " ", "\n", "t", "null", "é"];
    for (let round = 0; round < (torture ? 20_000 : 3000); round += 1) {
      let text = start;
      for (let change = Math.floor(random() * 3); change >= 0; change -= 1) {
        const at = Math.floor(random() * text.length);
        const piece = pieces[Math.floor(random() * pieces.length)] ?? "";
        text = text.slice(0, at) + (random() < 0.5 ? piece : "") + text.slice(at + (random() < 0.7 ? 1 : 0));
      }
      expectSame(text);
    }
  });

  test("are found in values that are nested deeply, up to a limit", () => {
    expectSame(`{"a":${"[".repeat(150)}1${"]".repeat(150)},"b":1}`);
    expect(read(`{"a":${"[".repeat(100_000)}`)).toMatch(/no JSON/);
  });
});

test("numbers are those that the engine finds", () => {
  const random = randomOf(3);
  const texts = ["0", "-0", "1e400", "-1E-5", "9007199254740993", "0.1", "123456789012345", "0.000000000000001"];
  for (let round = 0; round < (torture ? 20_000 : 3000); round += 1) {
    const digits = (most: number): string =>
      Array.from({ length: 1 + Math.floor(random() * most) }, () => Math.floor(random() * 10)).join("");
    const whole = String(BigInt(digits(17)));
    texts.push(`${random() < 0.3 ? "-" : ""}${whole}${random() < 0.7 ? `.${digits(17)}` : ""}`);
  }
  for (const text of texts) {
    const bytes = Buffer.from(text);
    expect(Object.is(numberIn(bytes, 0, bytes.length), Number(text)), text).toBe(true);
  }
});
