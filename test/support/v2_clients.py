"""Asks a server of the Open Inference Protocol by a client of others: python v2_clients.py triton|kserve URL"""

import asyncio
import json
import sys

import numpy as np

client, url = sys.argv[1:]
x = np.array([0.5, -3.0, 1e9])


def ask_triton():
    import tritonclient.http as http

    server = http.InferenceServerClient(url.removeprefix("http://"))
    assert server.is_server_live() and server.is_server_ready() and server.is_model_ready("small")
    assert "binary_tensor_data" in server.get_server_metadata()["extensions"]
    assert server.get_model_metadata("small")["inputs"][0]["name"] == "x"
    scores = []
    for binary in (True, False):
        given = http.InferInput("x", [3], "FP64")
        given.set_data_from_numpy(x, binary_data=binary)
        id = http.InferInput("id", [3], "INT64")
        id.set_data_from_numpy(np.arange(3), binary_data=binary)
        for outputs in (None, [http.InferRequestedOutput("score", binary_data=binary)]):
            answer = server.infer("small", [given, id], outputs=outputs)
            scores.append(answer.as_numpy("score").tolist())
    try:
        server.infer("small", [id])
    except http.InferenceServerException as error:
        return {"scores": scores, "refused": error.message()}


async def ask_kserve():
    from kserve import InferInput, InferRequest, InferenceRESTClient, RESTConfig

    server = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await server.is_server_live(url) and await server.is_server_ready(url)
    assert await server.is_model_ready(url, "small")
    scores = []
    for binary in (True, False):
        given = InferInput("x", [3], "FP64")
        given.set_data_from_numpy(x, binary_data=binary)
        answer = await server.infer(url, InferRequest(model_name="small", infer_inputs=[given]), model_name="small")
        scores.append(answer.outputs[0].as_numpy().tolist())
    return {"scores": scores}


print(json.dumps(ask_triton() if client == "triton" else asyncio.run(ask_kserve())))
