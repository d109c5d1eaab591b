#!/bin/bash
# Qwen2.5-7B on 4 devices: tensor 2 x pipeline 2; sizes as published, written for perfkit.
GPT_ARGS="
    --use-mcore-models \
    --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 2 \
    --sequence-parallel \
    --num-layers 28 \
    --hidden-size 3584 \
    --ffn-hidden-size 18944 \
    --num-attention-heads 28 \
    --group-query-attention \
    --num-query-groups 4 \
    --seq-length 10240 \
    --max-position-embeddings 10240 \
    --disable-bias-linear \
    --add-qkv-bias \
    --use-flash-attn \
    --swiglu \
    --normalization RMSNorm \
    --position-embedding-type rope \
    --untie-embeddings-and-output-weights \
    --micro-batch-size 1 \
    --global-batch-size 64 \
    --make-vocab-size-divisible-by 1 \
    --padded-vocab-size 152064 \
    --attention-dropout 0.0 \
    --hidden-dropout 0.0 \
    --bf16
"

torchrun --nproc_per_node 4 pretrain_gpt.py $GPT_ARGS
