"""Trains a model, runs the lines of docs/converters.md, and writes what the library itself predicts.

usage: converted_model.py LIBRARY LINES FOLDER; FOLDER gets features.parquet, model.onnx and expected.parquet.
"""

import os
import sys

import numpy as np
import pandas as pd

library, lines, folder = sys.argv[1:]
os.chdir(folder)

rng = np.random.default_rng(7)
x = rng.uniform(-3, 3, (500, 6)).astype("float32")
frame = pd.DataFrame(x, columns=[f"f{k}" for k in range(6)])
frame["city"] = rng.choice(["Köln", "Paris", "Łódź"], len(x))
target = (x[:, 0] + x[:, 1] * x[:, 2] + (frame["city"] == "Paris") > 0).astype(int)
frame.insert(0, "id", np.arange(len(x)))
frame.to_parquet("features.parquet")
frame = frame.drop(columns="id")


def scikit_learn():
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    steps = make_column_transformer((OneHotEncoder(), ["city"]), remainder=StandardScaler())
    model = make_pipeline(steps, LogisticRegression()).fit(frame, target)
    return model, model.predict_proba(frame)[:, 1]


def lightgbm():
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1).fit(x, target)
    return model, model.predict_proba(x)[:, 1]


def xgboost():
    from xgboost import XGBClassifier

    model = XGBClassifier(n_estimators=10, max_depth=4, n_jobs=1).fit(x, target)
    return model, model.predict_proba(x)[:, 1]


def catboost():
    from catboost import CatBoostClassifier

    model = CatBoostClassifier(iterations=10, depth=4, verbose=0, allow_writing_files=False, thread_count=1)
    model.fit(x, target)
    return model, model.predict_proba(x)[:, 1]


model, score = {"scikit-learn": scikit_learn, "LightGBM": lightgbm, "XGBoost": xgboost, "CatBoost": catboost}[library]()
exec(lines, {"model": model, "frame": frame, "x": x})
pd.DataFrame({"id": np.arange(len(x)), "score": np.asarray(score, "float32")}).to_parquet("expected.parquet")
