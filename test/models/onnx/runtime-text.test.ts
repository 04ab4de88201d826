import { describe, expect, test } from "vitest";
import { modelRefusal, withoutSource } from "#src/models/onnx/faults.js";

const source = "/onnxruntime_src/onnxruntime/core";

describe("error texts of ONNX Runtime are shown without its source", () => {
  test.each([
    {
      what: "a function with templates in its parameters",
      message: `${source}/graph/model_load_utils.h:46 void onnxruntime::model_load_utils::Validate(const std::unordered_map<std::__cxx11::basic_string<char>, int>&, bool) It is so.`,
      told: "It is so.",
    },
    {
      what: "a constructor, in the middle",
      message: `Non-zero status code returned while running Reshape node. Status Message: ${source}/providers/cpu/tensor/reshape_helper.h:47 onnxruntime::ReshapeHelper::ReshapeHelper(const onnxruntime::TensorShape&, onnxruntime::TensorShapeVector&, bool) input_shape_size == size was false. Input shape:{3} (of one)`,
      told: "Non-zero status code returned while running Reshape node. Status Message: input_shape_size == size was false. Input shape:{3} (of one)",
    },
    {
      what: "a method that is const, a template and a lambda",
      message: `${source}/a.cc:1 onnxruntime::A<T>::Run(int) const [with T = float] One. ${source}/b.cc:2 onnxruntime::B(int)::<lambda(int, float)> Two.`,
      told: "One. Two.",
    },
    {
      what: "a place without a function",
      message: `${source}/a.cc:1 Not found (at all).`,
      told: "Not found (at all).",
    },
    { what: "a prefix of Python's", message: "[ONNXRuntimeError] : 1 : FAIL : It failed.", told: "It failed." },
    {
      what: "nothing of it",
      message: "Load model from /models/a.onnx failed: x::y (z) is wrong",
      told: "Load model from /models/a.onnx failed: x::y (z) is wrong",
    },
  ])("$what", ({ message, told }) => {
    expect(withoutSource(message)).toBe(told);
  });
});

test("an unknown error text of ONNX Runtime is shown unchanged", () => {
  expect(modelRefusal("Protobuf parsing failed.")).toEqual({
    found: "Protobuf parsing failed.",
    hint: "check it with Python: onnxruntime.InferenceSession(path)",
  });
});

test("the refusal of a model whose locale is not there says how to install it", () => {
  const { found, hint } = modelRefusal(
    `Exception during initialization: ${source}/providers/cpu/text/string_normalizer.cc:235 onnxruntime::StringNormalizer::Locale::Locale(const std::string&)::<lambda()> Failed to construct locale with name:en_US.UTF-8:locale::facet::_S_create_c_locale name not valid:Please, install necessary language-pack-XX and configure locales`,
  );
  expect(found).toContain("the locale en_US.UTF-8, which this machine does not have");
  expect(hint).toMatch(/apt-get install locales && localedef .*LOCPATH/);
});
