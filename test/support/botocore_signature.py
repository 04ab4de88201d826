"""Signs requests with botocore as they were signed at their time, a line of JSON each, and prints the signatures.

Of each line: method, url, headers (those that were signed, x-amz-date among them), body in hexadecimal, service, region;
access key, secret key and token are in the usual variables.
"""

import json
import os
import sys
from datetime import datetime
from unittest import mock

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

credentials = Credentials(
    os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"], os.environ.get("AWS_SESSION_TOKEN")
)
for line in sys.stdin:
    one = json.loads(line)
    when = datetime.strptime(one["headers"].pop("x-amz-date"), "%Y%m%dT%H%M%SZ")
    request = AWSRequest(one["method"], one["url"], one["headers"], bytes.fromhex(one["body"]))
    clock = "get_current_datetime" if hasattr(botocore.auth, "get_current_datetime") else "datetime"
    with mock.patch.object(botocore.auth, clock) as now:
        now.return_value = when
        now.datetime.utcnow.return_value = when
        botocore.auth.SigV4Auth(credentials, one["service"], one["region"]).add_auth(request)
    print(request.headers["Authorization"])
