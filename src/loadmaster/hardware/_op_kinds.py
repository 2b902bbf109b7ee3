"""What an op does to a machine: the kind behind the op types of ONNX, OpenVINO, torch and the zoo."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import numpy.typing as npt

from loadmaster.graph import Graph

__all__ = ["KINDS", "TRAFFIC_KINDS", "op_kind", "op_kinds"]

KINDS = ("data", "view", "conv", "matmul", "recurrent", "elementwise", "reduction", "memory", "other")
"""``data``: nothing runs (inputs, constants, results). ``view``: only the shape changes. ``conv``,
``matmul``, ``recurrent``: arithmetic. ``elementwise``, ``reduction``, ``memory``: reading and writing.
``other``: not known."""

TRAFFIC_KINDS = ("elementwise", "reduction", "memory")
"""Kinds that memory bandwidth limits rather than arithmetic."""

TYPES = {
    "data": """
        parameter constant const result input output placeholder initializer getattr weight variable
        variablev2 readvalue
    """,
    "view": """
        reshape squeeze unsqueeze flatten identity view viewas unsafeview expanddims shapeof shape size
        rank noop stopgradient alias detach bitcast
    """,
    "conv": """
        conv conv1d conv2d conv3d convolution groupconvolution convolutionbackpropdata
        groupconvolutionbackpropdata convtranspose depthwiseconv depthwiseconv2d depthwiseconv2dnative
        deformableconvolution deformconv convinteger qlinearconv fusedconv binaryconvolution
        causalconvwithstate
    """,
    "matmul": """
        matmul gemm batchmatmul batchmatmulv2 fullyconnected linear einsum mm bmm addmm baddbmm addbmm
        matmulinteger qlinearmatmul attention scaleddotproductattention multiheadattention dense
        innerproduct fusedmatmul dot tensordot linearattention
    """,
    "recurrent": """
        lstm gru rnn lstmcell grucell rnncell lstmsequence grusequence rnnsequence augrucell blocklstm
    """,
    "elementwise": """
        add addn addv2 biasadd sub subtract mul multiply div divide truediv realdiv floordiv neg
        negative abs sign reciprocal relu relu6 prelu leakyrelu elu selu celu gelu silu swish hswish
        hsigmoid hardswish hardsigmoid sigmoid logsigmoid tanh softplus softsign mish exp expm1 log
        log1p sqrt rsqrt square pow power erf sin cos tan clamp clip minimum maximum min max equal
        notequal less lessequal lessorequal greater greaterequal greaterorequal logicaland logicalor
        logicalnot logicalxor and or not xor where select mod floormod floor ceil ceiling round sum mean
        fakequantize quantizelinear dequantizelinear dropout bernoulli scale swiglu glu masking mask
        update sgd adam momentum rmsprop optimizer optimizerstep applygradient applygradientdescent
        applyadam assign assignadd assignsub accumulate batchnorm batchnormalization batchnorminference
        fusedbatchnorm fusedbatchnormv3 rotaryembedding rope isnan isinf acos acosh asin asinh atan
        atanh sinh cosh bitshift bitwiseand bitwiseor bitwisexor bitwisenot thresholdedrelu shrink
        dynamicquantizelinear randomnormal randomnormallike randomuniform randomuniformlike affinegrid
    """,
    "reduction": """
        softmax logsoftmax layernorm layernormalization skiplayernormalization instancenormalization
        groupnormalization groupnorm instancenorm rmsnorm rmsnormalization simplifiedlayernormalization
        mvn normalizel2 lrn lpnormalization meanvariancenormalization reducesum reducemean reducemax
        reducemin reduceprod reducel1 reducel2 reducelogsumexp reducesumsquare reducelogicaland
        reducelogicalor argmax argmin topk cumsum maxpool averagepool avgpool globalaveragepool
        globalavgpool globalmaxpool adaptiveavgpool adaptiveaveragepool adaptivemaxpool lppool pool
        crossentropy softmaxcrossentropy softmaxcrossentropyloss sparsesoftmaxcrossentropy nllloss
        negativeloglikelihoodloss loss norm var std nonmaxsuppression sort unique amax amin logsumexp
        reducelogsum globallppool hardmax cumprod multinomial maxroipool
    """,
    "memory": """
        concat concatv2 cat stack pack unpack unstack split splitv variadicsplit slice stridedslice
        strideslice gather gathernd gatherelements gatherv2 gathertree embedding embeddingbag
        embeddinglookup lookup scatter scatternd scatterelements scatterupdate scatterndupdate
        scatterelementsupdate transpose permute pad tile copy clone contiguous cast convert convertlike
        tofp16 resize upsample interpolate depthtospace spacetodepth spacetobatch batchtospace
        spacetobatchnd batchtospacend reorder roll reverse reversesequence reversev2 flip range onehot
        eyelike eye zeros ones zeroslike oneslike constantofshape fill full trilu tril triu expand
        broadcast nonzero identityn send recv memcpy shift indexselect shufflechannels castlike
        centercroppad compress col2im maxunpool tensorscatter gridsample roialign
    """,
}
KIND_OF = {name: kind for kind, names in TYPES.items() for name in names.split()}

AFFIX = re.compile(r"^aten|^prim|^onnx|default$|tensor$|scalar$")
GRADIENT = re.compile(r"(grad(ient)?|backward|backprop(input|filter|data)?)$")


@cache
def op_kind(op_type: str) -> str:
    """The kind of an op type; gradients are of the kind of their op, and what is not known is ``other``.

    >>> op_kind("Conv"), op_kind("GroupConvolution"), op_kind("aten.addmm.default"), op_kind("MatMulGrad")
    ('conv', 'conv', 'matmul', 'matmul')
    """
    plain = re.sub(r"[^a-z0-9]", "", op_type.lower())
    for name in (plain, AFFIX.sub("", plain), re.sub(r"v?\d+d?$", "", plain)):
        if name in KIND_OF:
            return KIND_OF[name]
        base = GRADIENT.sub("", name)
        if base in KIND_OF:
            kind = KIND_OF[base]
            return "elementwise" if kind == "data" else kind
    return "other"


def op_kinds(graph: Graph) -> npt.NDArray[np.int8]:
    """(ops,) the kind of each op as an index into :data:`KINDS`."""
    return np.array([KINDS.index(op_kind(op_type)) for op_type in graph.op_types], np.int8)
