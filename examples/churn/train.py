"""Trains a model that tells who will leave, and writes what infer-batch needs: churn.onnx and data/.

    pip install -r requirements.txt
    python train.py

The customers are made up; with the same seed they are the same each time. expected.parquet holds what
scikit-learn itself predicts, which a test compares with what arrives in Postgres.
"""

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FEATURES = ["tenure_months", "monthly_fee", "support_calls", "late_payments", "data_gb"]
ROWS = 2000
SHARD_ROWS = 800


def make_customers(rows, rng):
    """A table of customers, and who of them left."""
    tenure = rng.integers(1, 120, rows)
    fee = rng.choice([9.99, 19.99, 29.99, 49.99], rows)
    calls = rng.poisson(1.5, rows)
    late = rng.poisson(0.4, rows)
    data = rng.gamma(2.0, 8.0, rows).round(2)
    odds = 0.6 * calls + 0.9 * late - 0.03 * tenure + 0.02 * fee - 0.8
    left = rng.random(rows) < 1 / (1 + np.exp(-odds))
    table = pa.table(
        {
            "customer_id": pa.array(np.arange(100_000, 100_000 + rows), pa.int64()),
            "signup": [date(2026, 11, 1) - timedelta(days=30 * int(months)) for months in tenure],
            "tenure_months": pa.array(tenure, pa.int32()),
            "monthly_fee": pa.array(fee, pa.float64()),
            "support_calls": pa.array(calls, pa.int32()),
            "late_payments": pa.array(late, pa.int32()),
            "data_gb": pa.array(data, pa.float64()),
        }
    )
    return table, left


def features_of(table):
    """The model's input: float32, the columns in the order it is trained with."""
    return np.column_stack([table[name].to_numpy() for name in FEATURES]).astype(np.float32)


def main():
    """Trains on some customers, writes others to be scored."""
    rng = np.random.default_rng(20261101)
    known, left = make_customers(20_000, rng)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(features_of(known), left.astype(np.int64))
    # zipmap=False: probabilities as a tensor, not as a list of dictionaries.
    onnx = to_onnx(model, features_of(known)[:1], options={"zipmap": False}, target_opset=17)
    Path("churn.onnx").write_bytes(onnx.SerializeToString())

    customers, _ = make_customers(ROWS, rng)
    Path("data").mkdir(exist_ok=True)
    for number, start in enumerate(range(0, ROWS, SHARD_ROWS)):
        pq.write_table(customers.slice(start, SHARD_ROWS), f"data/part-{number}.parquet", compression="zstd")
    probability = model.predict_proba(features_of(customers))[:, 1]
    expected = pa.table({"customer_id": customers["customer_id"], "leaves": pa.array(probability, pa.float32())})
    pq.write_table(expected, "expected.parquet", compression="zstd")


if __name__ == "__main__":
    main()
