#!/bin/bash
# Llama2-13B on 16 devices with Megatron-LM: tensor 2 x pipeline 2 x data 4.
set -e

NODES=2
DEVICES_PER_NODE=8
WORLD_SIZE=$((NODES * DEVICES_PER_NODE))
DATA=${DATA:-./data/text_document}

MODEL_ARGS=(
    --num-layers 40
    --hidden-size 5120
    --ffn-hidden-size 13824
    --num-attention-heads 40
    --swiglu
    --normalization RMSNorm
    --position-embedding-type rope
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --tokenizer-type Llama2Tokenizer
)

PARALLEL_ARGS="
    --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 2 \
    --sequence-parallel \
    --use-distributed-optimizer
"

TRAINING_ARGS=(
    --seq-length 4096
    --max-position-embeddings 4096
    --micro-batch-size 1
    --global-batch-size 1024
    --bf16
    --recompute-granularity selective   # the attention core only
    --lr 3.0e-4
)

torchrun --nproc_per_node $DEVICES_PER_NODE --nnodes $NODES pretrain_gpt.py \
    "${MODEL_ARGS[@]}" $PARALLEL_ARGS "${TRAINING_ARGS[@]}" --data-path "$DATA"
