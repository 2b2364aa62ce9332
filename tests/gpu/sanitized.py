"""What a memory checker watches: a step of training of small networks, sorted and drawn numbers, borders everywhere."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import tilegrad as tg  # noqa: E402
import tilegrad.nn.functional as F  # noqa: E402
from tilegrad.nn import models  # noqa: E402


def main() -> None:
    """Each once, launched kernel by kernel, and three times as graphs."""
    for make, shape in ((models.MLP, (5, 1, 28, 28)), (models.LeNet, (3, 1, 28, 28))):
        model = make().cuda()
        optimizer = tg.optim.Adam(model.parameters())
        x, t = tg.rand(*shape, device="cuda"), tg.randint(0, 10, (shape[0],), device="cuda")

        def step(model=model, optimizer=optimizer, x=x, t=t):  # type: ignore[no-untyped-def]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), t)
            loss.backward()
            optimizer.step()
            return loss

        quick = tg.jit(step)
        print([quick().item() for _ in range(4)])
    x = tg.randn(37, 1001, device="cuda")
    for wide in (x, x.bfloat16(), x.half()):
        made = (wide.float().sort(1)[0].sum(), wide.softmax(1).max(), (wide @ wide.T).sum(), wide.cumsum(0)[-1].sum())
        print([value.item() for value in made])
    rnn = tg.nn.LSTM(9, 7).cuda()
    print(rnn(tg.randn(5, 3, 9, device="cuda"))[0].sum().item())


if __name__ == "__main__":
    main()
