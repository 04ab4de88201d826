import { describe, expect, test } from "vitest";
import { valueBars } from "#src/report/page/sections.js";
import { style } from "#src/report/page/page.js";

type Colours = Readonly<Record<string, string>>;

const [light = {}, dark = {}] = [...style.matchAll(/:root \{([^}]*)\}/g)].map(
  ([, declarations = ""]): Colours =>
    Object.fromEntries([...declarations.matchAll(/--(\w+): (#[\da-f]+);/g)].map(([, name, value]) => [name, value])),
);

/** The relative luminance of WCAG 2.2. */
function luminance(colour: string): number {
  const hex = colour.length === 4 ? colour.replaceAll(/[\da-f]/g, "$&$&") : colour;
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one = "#000", other = "#000"): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].toSorted((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

describe.each([
  ["light", light],
  ["dark", dark],
])("the %s colours of the page", (name, { paper, shade, ink, quiet, good, warned, bad, now, was }) => {
  test(`${name} texts have a contrast of at least 4.5 with the page, as WCAG asks of small text`, () => {
    const ratios = [ink, quiet, good, warned, bad].map((colour) => contrast(colour, paper));
    expect(Math.min(...ratios, contrast(ink, shade))).toBeGreaterThan(4.5);
    expect(ratios).toHaveLength(5);
  });

  test(`${name} bars differ from the page by at least 3, and outlines from bars, as WCAG asks of graphics`, () => {
    expect(Math.min(contrast(now, paper), contrast(was, now), contrast(was, paper))).toBeGreaterThan(3);
  });
});

test("an empty label is named as such on the page, and one that ends with a blank is in quotes", () => {
  const values = [
    { name: "", now: 2, before: 0 },
    { name: " ", now: 1, before: 0 },
    { name: "0.30000000000000004", now: 1, before: 0 },
    { name: "north ", now: 1, before: 0 },
  ];
  const page = valueBars({ kind: "values", values, others: undefined, total: 4, totalBefore: 0 }).markup;
  expect([...page.matchAll(/<dt>(.*?)<\/dt>/g)].map(([, label]) => label)).toEqual([
    "(empty text)",
    "(white space)",
    "0.3",
    "&quot;north &quot;",
  ]);
});
