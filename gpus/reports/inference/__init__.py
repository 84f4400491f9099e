"""Inference servers beside their GPUs: figures of vLLM, SGLang, Triton and Dynamo, read from Prometheus on demand."""
