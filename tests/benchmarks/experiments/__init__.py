"""The experiments, by name. Each has `run(settings)`, which returns a `Result`."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks.bench import Settings
from tests.benchmarks.experiments import (
    allocation,
    blockages,
    bulk,
    control_loss,
    crowd,
    durability,
    echo,
    fairness,
    first_byte,
    goodput_rtt,
    idle_streams,
    kills,
    loopback,
    objects,
    pep_and_cc,
    planner,
    position_reports,
    prediction,
    report_to_plan,
    satlink,
    start_up,
    survival,
    upload,
)
from tests.benchmarks.records import Result

EXPERIMENTS: dict[str, Callable[[Settings], Result]] = {
    "satlink": satlink.run,
    "first-byte": first_byte.run,
    "object-1mb": objects.run_1mb,
    "object-1mb-idle": objects.run_1mb_idle,
    "object-8mb-no-loss": objects.run_8mb_no_loss,
    "object-8mb": objects.run_8mb,
    "object-8mb-vehicle": objects.run_8mb_vehicle,
    "bulk-200mb": bulk.run_200mb,
    "bulk-1gb": bulk.run_1gb,
    "bulk-1gb-loss": bulk.run_1gb_loss,
    "upload": upload.run,
    "start-up": start_up.run,
    "crowd": crowd.run,
    "echo": echo.run,
    "loopback": loopback.run,
    "idle-streams": idle_streams.run,
    "blockage-24mb": blockages.run_object,
    "highway": blockages.run_highway,
    "real-drive": blockages.run_real_drive,
    "resumption": blockages.run_resumption,
    "survival": survival.run,
    "disk-throughput": durability.run_throughput,
    "disk-restart": durability.run_restart,
    "kill-9": kills.run,
    "pep-and-cc": pep_and_cc.run,
    "goodput-rtt": goodput_rtt.run,
    "fairness": fairness.run,
    "prediction": prediction.run,
    "allocation": allocation.run,
    "planner": planner.run,
    "position-reports": position_reports.run,
    "report-to-plan": report_to_plan.run,
    "control-loss": control_loss.run,
}
