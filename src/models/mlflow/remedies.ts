import { JobError } from "../../util/errors.js";

/** Python that converts a model of a flavor to ONNX, by flavor. */
const converters: Readonly<Record<string, string>> = {
  sklearn: "skl2onnx.to_onnx(mlflow.sklearn.load_model(URI), X[:1], options={'zipmap': False})",
  lightgbm: "onnxmltools.convert_lightgbm(mlflow.lightgbm.load_model(URI), initial_types=TYPES, zipmap=False)",
  xgboost: "onnxmltools.convert_xgboost(mlflow.xgboost.load_model(URI), initial_types=TYPES)",
  tensorflow: "tf2onnx.convert.from_keras(mlflow.tensorflow.load_model(URI))[0]",
  pytorch: "torch.onnx.export(mlflow.pytorch.load_model(URI), X, dynamo=True).model_proto",
};

/** Makes the error for a model that is not stored as ONNX. @param flavors undefined: MLmodel cannot be read */
export function notOnnxError({
  doing,
  uri,
  flavors,
}: {
  readonly doing: string;
  readonly uri: string;
  readonly flavors: readonly string[] | undefined;
}): JobError {
  if (flavors === undefined) {
    return new JobError("MODEL_INVALID", `${doing}: its MLmodel is damaged`, { hint: "log the model again" });
  }
  const has = flavors.length === 0 ? "no flavor at all" : flavors.join(", ");
  const flavor = flavors.find((one) => Object.hasOwn(converters, one));
  const convert = (flavor === undefined ? undefined : converters[flavor]) ?? "…  # the model as onnx.ModelProto";
  const [, name = "NAME"] = /^models:\/([^/@]+)/.exec(uri) ?? [];
  const lines = [
    "convert it in Python, then set model.path to the new version:",
    `onx = ${convert.replace("URI", `"${uri}"`)}`,
    `mlflow.onnx.log_model(onx, name="model", registered_model_name="${name}")`,
  ];
  return new JobError("MODEL_INVALID", `${doing}: it has no flavor onnx, but ${has}`, { hint: lines.join("\n    ") });
}
