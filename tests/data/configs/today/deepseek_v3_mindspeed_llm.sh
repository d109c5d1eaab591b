#!/bin/bash
# A mixture of experts with latent attention on 512 devices, with the options that MindSpeed-LLM has for it.
NPUS_PER_NODE=8
NNODES=64
TP=4
PP=8
EP=8

DISTRIBUTED_ARGS="
    --nproc_per_node $NPUS_PER_NODE \
    --nnodes $NNODES
"

GPT_ARGS="
    --use-mcore-models \
    --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size ${PP} \
    --expert-model-parallel-size ${EP} \
    --sequence-parallel \
    --context-parallel-algo ulysses_cp_algo \
    --num-layers 64 \
    --noop-layers 61,62,63 \
    --hidden-size 7168 \
    --ffn-hidden-size 18432 \
    --num-attention-heads 128 \
    --multi-head-latent-attention \
    --qk-rope-head-dim 64 \
    --qk-nope-head-dim 128 \
    --q-lora-rank 1536 \
    --kv-lora-rank 512 \
    --v-head-dim 128 \
    --qk-layernorm \
    --first-k-dense-replace 3 \
    --moe-layer-freq 1 \
    --n-shared-experts 1 \
    --num-experts 256 \
    --moe-router-topk 8 \
    --moe-intermediate-size 2048 \
    --moe-router-enable-expert-bias \
    --moe-token-dispatcher-type alltoall_seq \
    --moe-grouped-gemm \
    --mtp-num-layers 1 \
    --swap-optimizer \
    --use-distributed-optimizer \
    --recompute-method uniform \
    --recompute-granularity full \
    --recompute-num-layers 1 \
    --schedules-method dualpipev \
    --seq-length 4096 \
    --micro-batch-size 1 \
    --global-batch-size 3840 \
    --padded-vocab-size 129280 \
    --position-embedding-type rope \
    --normalization RMSNorm \
    --swiglu \
    --untie-embeddings-and-output-weights \
    --disable-bias-linear \
    --hidden-dropout 0.0 \
    --attention-dropout 0.0 \
    --use-flash-attn \
    --lr 1.0e-5 \
    --train-iters 2000 \
    --fp8-format e4m3 \
    --bf16
"

torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS
