"""A package behind HTTP: ``PACKAGE=net.tl uvicorn tests.exporting.server:app``."""

from __future__ import annotations

import os

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import turbine_lite

package = turbine_lite.load(os.environ["PACKAGE"])


async def predict(request: Request) -> JSONResponse:
    try:
        rows = np.asarray((await request.json())["rows"], np.float32)
        result = await run_in_threadpool(package, rows)
    except (KeyError, TypeError, ValueError) as error:
        return JSONResponse({"error": str(error)}, status_code=400)
    return JSONResponse({"rows": result.tolist()})


app = Starlette(routes=[Route("/predict", predict, methods=["POST"])])
