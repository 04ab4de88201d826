"""Starts an MLflow server in the folder FOLDER/data, and registers two versions of the model `churn`.

usage: mlflow_seed.py PORT FOLDER MODEL
Version 1 is the ONNX file MODEL, with the alias champion; version 2 adds 1000 to its scores, and declares float64.
"""
import os, subprocess, sys, time, urllib.request

os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", GIT_PYTHON_REFRESH="quiet", DO_NOT_TRACK="true")
port, folder, path = sys.argv[1:]
data = os.path.join(folder, "data")
os.makedirs(data)
env = {
    **os.environ,
    "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{data}/mlflow.db",
    "_MLFLOW_SERVER_ARTIFACT_DESTINATION": f"{data}/artifacts",
    "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
    "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
}
app = ["-m", "uvicorn", "mlflow.server.fastapi_app:app", "--host", "127.0.0.1", "--port", port]
server = subprocess.Popen([sys.executable, *app], env=env, cwd=data)
try:
    import mlflow, numpy as np, onnx
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec
    from onnx import numpy_helper

    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/health")
            break
        except OSError:
            time.sleep(0.2)
    mlflow.set_tracking_uri(url)
    client = mlflow.MlflowClient()
    for version, dtype in ((1, np.float32), (2, np.float64)):
        model = onnx.load(path)
        if version == 2:
            bias = model.graph.initializer[-1]
            bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(1000), bias.name))
        signature = ModelSignature(
            Schema([TensorSpec(np.dtype(dtype), (-1, 10), "features")]),
            Schema([TensorSpec(np.dtype(np.float32), (-1, 1), "score")]),
        )
        with mlflow.start_run():
            # Weights of 1 KiB and more are stored in a file with a random name.
            mlflow.onnx.log_model(model, name="model", signature=signature, registered_model_name="churn", pip_requirements=["onnx"])
    client.set_registered_model_alias("churn", "champion", "1")
    client.set_model_version_tag("churn", "1", "stage", "prod")
finally:
    server.terminate()
    server.wait()
