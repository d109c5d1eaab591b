"""Loops as people write them: micro batches inside a step, steps inside a function, callbacks, iterators, newer syntax."""

from __future__ import annotations

import ast

import pytest

from perfkit.config.lint import lint_text
from perfkit.config.lint.newer_python import parse_python

SYNC = "sync-in-step"


def lines(text: str, rule: str = SYNC) -> list[int | None]:
    report = lint_text("train.py", text)
    assert report.failed == ()
    return [problem.line for problem in report.problems if problem.rule == rule]


MICRO = """for step in range(num_steps):
    optimizer.zero_grad()
    for micro in micro_batches:
        loss = model(micro)
        loss.backward()
    optimizer.step()
    print(loss.item())
"""
EPOCHS = """def train_one_epoch(model, loader):
    setup(model.weight.item())
    for batch in loader:
        loss = train_step(batch)
    print(loss.item())


for epoch in range(epochs):
    train_one_epoch(model, loader)
    scheduler.step()
    print(history.item())
"""
ITERATOR = """it = iter(loader)
while done < total:
    batch = next(it)
    loss = pipeline(batch)
    print(loss.item())
    done += 1
"""
CALLBACK = """class Monitor(Callback):
    def on_train_step_end(self, run_context):
        loss = run_context.original_args().net_outputs
        print(loss.asnumpy())

    def on_train_end(self, run_context):
        print(self.total.asnumpy())
"""


def test_a_loop_of_micro_batches_does_not_hide_the_step_around_it():
    assert lines(MICRO) == [7]


def test_what_runs_once_an_epoch_is_not_in_every_step():
    assert lines(EPOCHS) == []
    assert lines(
        EPOCHS.replace("        loss = train_step(batch)\n", "        loss = train_step(batch)\n        log(loss.item())\n")
    ) == [5]


def test_a_loop_that_takes_the_next_batch_runs_steps():
    assert lines(ITERATOR) == [5]


def test_callbacks_of_every_step_are_hot_and_those_of_the_end_are_not():
    assert lines(CALLBACK) == [4]


NEWER = """type Batch = dict[str, int]


class Net[T = int](nn.Cell):
    def construct[S: (int, str)](self, x: S) -> T:
        name = f"{self.names["a"]} of {x['b']}"
        return ops.silu(x), ops.transpose(x, (1, 0)), ops.cat((x, x), axis=1), ops.gather(x, i, 0)
"""


def test_newer_syntax_is_parsed_on_its_own_lines():
    tree = parse_python(NEWER, "net.py")
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] == [5]
    assert [problem.rule for problem in lint_text("net.py", NEWER).problems if problem.severity == "error"] == []


def test_replacements_are_those_that_are_documented():
    fixes = [problem.fix for problem in lint_text("net.py", NEWER).problems if problem.rule == "ops-not-mint"]
    assert fixes == ["mint.nn.functional.silu(...)", "mint.permute(...)", "mint.cat(...), with dim for axis"]
    method = "class Net(nn.Cell):\n    def construct(self, x):\n        return x.sum(axis=1, keepdims=True)\n"
    assert [problem.fix for problem in lint_text("net.py", method).problems if problem.rule == "method-sum"] == [
        "mint.sum(x, dim=1, keepdim=True)"
    ]


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        ("ops.softmax(x)", "mint.nn.functional.softmax(...), with dim=-1, which ops takes without being told"),
        ("ops.softmax(x, 1)", "mint.nn.functional.softmax(...)"),
        ("ops.softmax(x, axis=1)", "mint.nn.functional.softmax(...), with dim for axis"),
    ],
)
def test_a_default_that_mint_has_not_is_written_down(call, fix):
    text = f"class Net(nn.Cell):\n    def construct(self, x):\n        return {call}\n"
    assert [problem.fix for problem in lint_text("net.py", text).problems if problem.rule == "ops-not-mint"] == [fix]


@pytest.mark.parametrize("text", ["def (:\n", "print 'x'\n", "type = [\n", 'f"{a\n'])
def test_broken_sources_are_refused_with_their_line(text):
    with pytest.raises(SyntaxError):
        parse_python(text, "x.py")


def told(text: str, rule: str = SYNC) -> list[str]:
    return [problem.message for problem in lint_text("train.py", text).problems if problem.rule == rule]


STEP = "for step, batch in enumerate(loader):\n    loss = train_step(batch)\n"


@pytest.mark.parametrize(
    "body",
    [
        "    if step % 10 == 0:\n        for name in names:\n            report(name, loss.item())\n",  # a loop inside what counts
        "    if not self.should_log(step):\n        continue\n    print(loss.item())\n",  # left before in most steps
        "    if step_interval_reached:\n        report(loss.item())\n",
        "    try:\n        work()\n    except ValueError:\n        report(loss.item())\n",
        "    logger.warning('overflow', scale.item())\n",
        "    optimizer.synchronize()\n",  # Horovod's: it waits for gradients, as a step must
        "    kind = float(norm_type)\n    most = float(max_norm)\n",  # numbers of the configuration
        "    save_all(loss)\n\n\ndef save_all(loss):\n    return loss.item()\n",
    ],
)
def test_what_runs_only_in_some_steps_or_fetches_nothing_is_not_found(body):
    assert told(STEP + body) == []


@pytest.mark.parametrize(
    "text",
    [
        "def evaluate(model, loader):\n    for batch in loader:\n        total += model(batch).item()\n",
        "with torch.no_grad():\n    for batch in loader:\n        total += model(batch).item()\n",
        "@torch.inference_mode()\ndef run(model, loader):\n    for batch in loader:\n        total += model(batch).item()\n",
        "def generate(model, prompt):\n    while True:\n        token = model(prompt)\n        ids.append(token.item())\n",
        "for epoch in range(10):\n    loss = train_epoch_fn()\n    print(loss.item())\n",
        "for model in models:\n    load_model(model)\n    print(size.item())\n",
    ],
)
def test_loops_of_something_else_than_steps_of_training_are_none(text):
    assert told(text) == []


def test_a_chain_is_one_finding_and_says_under_which_condition_it_runs():
    text = STEP + "    if config.clip > 0:\n        report(norm.detach().cpu().item())\n"
    assert told(text) == ["norm.detach().cpu().item() waits for the device in every step where config.clip > 0"]


def test_the_condition_of_the_call_counts_too():
    text = (
        "def refresh(scale):\n    if scale is None:\n        return\n    report(scale.item())\n\n\n"
        + STEP
        + "    if self.dynamic:\n        refresh(scale)\n"
    )
    assert told(text) == ["scale.item() waits for the device in every step where not (scale is None) and self.dynamic"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import torch\nclass Net(nn.Module):\n    def forward(self, x):\n        return x.contiguous()\n", "contiguous-unchecked"),
        (STEP + "    report(torch.tensor(seconds))\n", "tensor-from-numpy-copy"),
        ("if args.deterministic:\n    set_deterministic(True)\n", "deterministic-on"),
        ("start = time.time()\nmodel = setup_model(config)\nprint(time.time() - start)\n", "timing-without-sync"),
    ],
)
def test_what_only_looks_like_a_habit_is_left_alone(text, rule):
    assert told(text, rule) == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("losses.append(loss.item())\n    total = sum(losses)", []),
        ("total = sum(one.item() for one in losses)", []),
        ("total = sum(losses_of(batch).tolist())", []),
        ("losses.append(loss)\n    total = sum(losses)", [5]),
        ("losses.append(loss.item())\n    losses.append(loss)\n    total = sum(losses)", [6]),
        ("total = sum(losses)", [4]),
    ],
)
def test_a_sum_of_what_was_fetched_before_launches_nothing(body, found):
    text = f"for batch in loader:\n    loss = model(batch)\n    loss.backward()\n    {body}\n    optimizer.step()\n"
    assert lines(text, "python-sum") == found


ACCUMULATED = """for epoch in range(epochs):
    for idx, batch in enumerate(loader):
        with torch.no_grad():
            reference = reference_model(batch)
        loss = pipeline(batch, reference)
        running += loss.detach()
        loss.backward()
        if (idx + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
            told = running.item()
        if (idx + 1) % 100 == 0:
            log(running.item())
    if pending:
        optimizer.step()
        print(loss.item())
"""


def test_once_in_as_many_batches_as_are_summed_is_every_step_and_what_an_epoch_leaves_over_is_not():
    """A frozen model inside has no gradients; the loop has (torchtune's recipes, NeMo Automodel's eagle3)."""
    assert lines(ACCUMULATED) == [11]
    assert lines(ACCUMULATED.replace("accumulation_steps", "log_steps")) == []


DRIVER = """from verl.single_controller.ray import RayWorkerGroup

for batch in dataloader:
    output = workers.update_actor(batch)
    lengths = batch["attention_mask"].sum(-1).tolist()
"""


def test_a_driver_of_remote_workers_has_its_tensors_on_the_host():
    assert lines(DRIVER) == []
    assert lines(DRIVER.replace("verl.single_controller.ray", "verl.array")) == [5]
    assert lines(DRIVER + "    loss.backward()\n") == [5]


HOST = """class Balance(Callback):
    def on_train_step_end(self, run_context):
        counts = np.array(self.counts).T
        print(counts[0].tolist())
        if not self.flops_calculated:
            self.flops = reduce(Tensor([self.flops])).asnumpy()
        loads = self.network.loads
        print(loads.asnumpy())
"""


def test_arrays_of_numpy_and_what_is_calculated_once_are_no_waiting():
    assert lines(HOST) == [8]
    assert lines(HOST.replace("np.array(self.counts)", "self.counts")) == [4, 8]


def test_a_function_that_asks_the_model_cannot_run_ahead_of_it():
    text = "for batch in loader:\n    batch = filtered(model, batch)\n    loss = model(batch)\n    loss.backward()\n"
    assert lines(text, "work-between-batches") == []
    assert lines(text.replace("filtered(model, batch)", "filtered(batch)"), "work-between-batches") == [2]


def test_a_function_that_trains_and_validates_trains_and_one_step_alone_is_not_every_step():
    text = """def train_and_validate(loader):
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step == 1:
            print(grad.item())
        print(loss.item())
"""
    assert lines(text) == [7]
    assert lines(text.replace("train_and_validate", "validate_trained")) == []


WHOLE_STEP = """
class Recipe:
    def run(self):
        for batches in self.step_scheduler:
            logged = self._run_train_optim_step(batches)
            self.log(logged)

    def _forward_backward_step(self, batch):
        batch = {key: value.to(self.device, non_blocking=True) for key, value in batch.items()}
        loss = self.model(**batch)
        loss.backward()
        self.losses.append(loss.detach())

    def _run_train_optim_step(self, batches):
        tokens = torch.tensor(sum((batch["labels"] != -100).sum().item() for batch in batches))
        tokens = self._dp_allreduce(tokens).item()
        for batch in batches:
            self._forward_backward_step(batch)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return torch.sum(torch.stack(self.losses)).item()
"""
"""The shape of NeMo Automodel's recipes (nemo_automodel/recipes/llm/train_ft.py)."""


def test_a_step_that_is_a_function_around_its_micro_batches_is_followed():
    lines = [problem.line for problem in lint_text("train.py", WHOLE_STEP).problems if problem.rule == "sync-in-step"]
    text = WHOLE_STEP.splitlines()
    assert ["allreduce" in text[line - 1] or "stack" in text[line - 1] for line in lines] == [True, True]


def test_a_value_of_a_batch_waits_once_it_is_on_the_device():
    asked = WHOLE_STEP.replace("        loss.backward()", '        count = batch["labels"].sum().item()\n        loss.backward()')
    told = [problem.message for problem in lint_text("train.py", asked).problems if problem.rule == "sync-in-step"]
    assert any(message.startswith("batch['labels'].sum().item()") for message in told)


def test_what_an_epoch_leaves_over_makes_no_step_of_it():
    text = """
def train_epoch(model, loader, optimizer):
    total = 0
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
        total += loss.detach()
    optimizer.step()
    return total.item()
"""
    assert [problem.rule for problem in lint_text("train.py", text).problems if problem.rule == "sync-in-step"] == []


def waits(text):
    lines = text.splitlines()
    return [
        lines[one.line - 1].strip() for one in lint_text("train.py", text).problems if one.rule in ("sync-in-step", "gc-each-step")
    ]


FETCHED = """
class Brain:
    def fit_batch(self, batch):
        loss = self.compute(batch)
        loss.backward()
        self.optimizer.step()
        return RETURNED

    def fit(self, loader):
        for batch in loader:
            loss = self.fit_batch(batch)
            self.average = self.update_average(loss, self.average)

    def update_average(self, loss, average):
        return average + float(loss) / self.step
"""


@pytest.mark.parametrize(
    ("returned", "waiting"),
    [("loss.detach().cpu()", ["return loss.detach().cpu()"]), ("loss.detach()", ["return average + float(loss) / self.step"])],
)
def test_a_loss_that_was_fetched_is_fetched_once(returned: str, waiting: list[str]):
    """SpeechBrain's `update_average`: what another function has fetched is on the host, under whatever name it is passed on."""
    assert waits(FETCHED.replace("RETURNED", returned)) == waiting


def test_a_fetched_name_is_fetched_once_and_another_value_under_it_again():
    begin = "for batch in loader:\n    loss = train_step(batch)\n    loss = loss.item()\n    print(loss)\n"
    assert waits(begin) == ["loss = loss.item()"]
    assert waits(begin + "    loss = train_step(batch)\n    print(loss)\n") == ["loss = loss.item()", "print(loss)"]


def test_a_loop_of_validation_is_told_by_its_class_and_its_methods_by_their_own():
    """The loops of mmengine (runner/loops.py): a class each, whose methods have the same names."""
    text = """
class EpochBasedTrainLoop:
    def run_epoch(self):
        for index, batch in enumerate(self.dataloader):
            self.run_iter(index, batch)

    def run_iter(self, index, batch):
        outputs = self.model.train_step(batch)
        self.first = outputs.sum().item()


class ValLoop:
    def run(self):
        for index, batch in enumerate(self.dataloader):
            self.run_iter(index, batch)

    def run_iter(self, index, batch):
        outputs = self.model.val_step(batch)
        self.second = outputs.sum().item()
"""
    assert waits(text) == ["self.first = outputs.sum().item()"]


def test_forgetting_old_gradients_makes_no_step_of_an_epoch():
    """The loop of ultralytics (engine/trainer.py), which collects garbage between its epochs."""
    text = """
def train(self):
    while True:
        self.optimizer.zero_grad()
        for i, batch in enumerate(self.train_loader):
            self.loss = self.model(batch)
            self.loss.backward()
            self.optimizer_step()
        self.metrics.update(epoch=1)
        self.clear()

def clear(self):
    gc.collect()
"""
    assert waits(text) == []


def test_what_is_computed_before_training_is_no_step():
    text = """
def _precompute_ref_logps(self, loader):
    for batch in loader:
        self.found.append(self.compute_ref(self.model, batch).cpu())
"""
    assert waits(text) == []
