//! Kernels: one op on the local blocks of one rank. Plain loops and GEMM on views; independent of the dense oracle.

pub mod broadcast;
pub mod einsum;
pub mod elementwise;
pub mod gemm;
pub mod one_hot;
pub mod reduce;
pub mod strided;
