"""Forward + backward of one Llama-layout net on the CPU: ours against PyTorch (eager, float32), same weights and tokens.

figures: learner-vs-torch

The two losses and gradient norms must agree before anything is timed. Rounds alternate; the ratio is of the medians, above 1
means that ours is faster; in brackets the ratios of the rounds, then the rates. Without torch the figure is absent.
"""
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

B = os.environ.get("B", "build/release")
ROUNDS, INNER = 5, 3
SEQS, LEN, VOCAB, HEADS, KV, LAYERS = 8, 256, 2048, 8, 4, 4

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("bench: learner-vs-torch is absent: torch cannot be imported by this Python", file=sys.stderr)
    sys.exit(0)


def ours(folder):
    p = subprocess.run([f"{B}/tests/bench/learner_load", folder, str(INNER), str(os.cpu_count())], check=True,
        stdout=subprocess.PIPE)
    return json.loads(p.stdout)


def weights_of(manifest):
    raw = (pathlib.Path(manifest).parent / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    data = bytearray(raw[8 + n:])
    out = {}
    for name, t in head.items():
        if name != "__metadata__":
            lo, hi = t["data_offsets"]
            w = torch.frombuffer(data, dtype=torch.float32, count=(hi - lo) // 4, offset=lo).clone()
            out[name] = w.reshape(t["shape"]).requires_grad_()
    return out


def loss_of(w, x, y):
    def norm(h, name):
        return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5) * w[name]

    def rope(t):
        half = t.shape[-1] // 2
        angle = torch.arange(LEN).float()[:, None] * 10000.0 ** (-torch.arange(half).float() / half)
        cos, sin = angle.cos(), angle.sin()
        a, b = t[..., :half], t[..., half:]
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    h = F.embedding(x, w["model.embed_tokens.weight"])
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        n = norm(h, p + "input_layernorm.weight")
        q, k, v = ((n @ w[f"{p}self_attn.{c}_proj.weight"].T).view(SEQS, LEN, m, -1).transpose(1, 2)
                   for c, m in (("q", HEADS), ("k", KV), ("v", KV)))
        q, k = rope(q), rope(k)
        k, v = k.repeat_interleave(HEADS // KV, 1), v.repeat_interleave(HEADS // KV, 1)
        if hasattr(F, "scaled_dot_product_attention"):
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            a = s.masked_fill(torch.ones(LEN, LEN).triu(1).bool(), float("-inf")).softmax(-1) @ v
        h = h + a.transpose(1, 2).reshape(SEQS, LEN, -1) @ w[p + "self_attn.o_proj.weight"].T
        n = norm(h, p + "post_attention_layernorm.weight")
        mid = F.silu(n @ w[p + "mlp.gate_proj.weight"].T) * (n @ w[p + "mlp.up_proj.weight"].T)
        h = h + mid @ w[p + "mlp.down_proj.weight"].T
    return F.cross_entropy((norm(h, "model.norm.weight") @ w["lm_head.weight"].T).view(-1, VOCAB), y.view(-1))


def theirs(w, x, y):
    times = []
    for i in range(INNER + 1):
        for t in w.values():
            t.grad = None
        start = time.perf_counter()
        loss = loss_of(w, x, y)
        loss.backward()
        times.append(time.perf_counter() - start)
    return loss.item(), sum(float(t.grad.pow(2).sum()) for t in w.values()) ** 0.5, times[1:]


def main():
    torch.set_num_threads(os.cpu_count())
    index = torch.arange(SEQS * LEN)
    x, y = ((index * 7919 + k) % VOCAB for k in (0, 1))
    x, y = x.view(SEQS, LEN), y.view(SEQS, LEN)
    with tempfile.TemporaryDirectory() as folder:
        mine, peer, w = [], [], None
        for _ in range(ROUNDS):
            a = ours(folder)
            w = w or weights_of(a["weights"])
            loss, norm, seconds = theirs(w, x, y)
            if abs(loss - a["loss"]) > 1e-4 or abs(norm - a["grad_norm"]) > 1e-3 * norm:
                sys.exit(f"bench_learner: not the same net: loss {a['loss']} and {loss}, "
                         f"gradient norm {a['grad_norm']} and {norm}")
            mine.append(statistics.median(a["seconds"]))
            peer.append(statistics.median(seconds))
    ratios = [p / m for p, m in zip(peer, mine)]
    tokens = SEQS * LEN
    print(f"learner-vs-torch {statistics.median(peer) / statistics.median(mine):.2f} x ({min(ratios):.2f} … {max(ratios):.2f}; "
          f"ours {tokens / statistics.median(mine):.0f} tokens/s, torch {tokens / statistics.median(peer):.0f})")


if __name__ == "__main__":
    main()
