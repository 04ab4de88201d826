import { describe, expect, test } from "vitest";
import { orderInMetadata, parseFeatureNames } from "#src/models/binding/model-facts.js";

describe("feature names", () => {
  test.each([
    ['["a", "b c"]'],
    ['{ "feature_names": ["a", "b c"] }'],
    ['{ "version": 1, "feature_names_in_": ["a", "b c"] }'],
    ["a,b c"],
    ["a\nb c\n"],
    ["a\r\nb c\r\n"],
  ])("are read from %j", (text) => {
    expect(parseFeatureNames(text)).toEqual(["a", "b c"]);
  });

  test.each(["", "[1, 2]", "{}", "7", "[]"])("are none in %j", (text) => {
    expect(parseFeatureNames(text)).toEqual([]);
  });

  test("are found in the metadata of a model under the usual keys", () => {
    expect(orderInMetadata(new Map([["author", "me"]]))).toBeUndefined();
    expect(orderInMetadata(new Map([["feature_names", "a,b"]]))).toEqual({
      names: ["a", "b"],
      from: "feature_names in the model's metadata",
    });
  });
});
