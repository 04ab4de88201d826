"""A model behind FastAPI: serve_fastapi.py MODEL OUTPUT PORT. One process, since it has one core."""

import sys
from operator import attrgetter

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, Field, create_model

FEATURES = [f"f{index}" for index in range(32)]
path, output, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
onnxruntime.disable_telemetry_events()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
input_name = session.get_inputs()[0].name
features_of = attrgetter(*FEATURES)

Row = create_model("Row", id=(int, ...), **{name: (float, ...) for name in FEATURES})


class Request(BaseModel):
    rows: list[Row] = Field(min_length=1, max_length=1000)


class Prediction(BaseModel):
    id: int
    score: float


class Answer(BaseModel):
    predictions: list[Prediction]


app = FastAPI(openapi_url=None)


@app.get("/healthz")
async def healthz():
    return {"live": True}


@app.post("/predict")
async def predict(request: Request) -> Answer:
    """Calls the model in the event loop: a call takes less time than a thread would add."""
    features = np.array([features_of(row) for row in request.rows], dtype=np.float32)
    (values,) = session.run([output], {input_name: features})
    scores = values.reshape(len(request.rows), -1)[:, -1].tolist()
    return Answer(predictions=[Prediction(id=row.id, score=score) for row, score in zip(request.rows, scores)])


uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", log_level="warning", access_log=False)
