// A device that is not the CPU, for tests on machines that have no other: its tensors lie in ordinary memory and its
// kernels are the CPU's, but they do not mix with CPU tensors. An operation that a GPU would refuse is refused here.
// Loaded with torch.ops.load_library(); registered as torch's PrivateUse1 device.

#include <ATen/native/CPUFallback.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ATen.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <set>
#include <string>

namespace {

const c10::Device HERE(c10::DeviceType::PrivateUse1, 0);

struct Memory final : c10::Allocator {
  static void release(void* pointer) { c10::free_cpu(pointer); }
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = bytes ? c10::alloc_cpu(bytes) : nullptr;
    return {pointer, pointer, &release, HERE};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return HERE; }
  c10::Device getDevice() const override { return HERE; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, HERE); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
};
Hooks hooks;

const bool registered = [] {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &memory);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

at::Tensor empty(
    c10::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device>,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, &memory, keys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device>,
    std::optional<bool>) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, &memory, keys, c10::dtype_or_default(dtype));
}

// While a step is recorded, a GPU refuses what makes the processor wait for it or copies to it.
bool recording = false;

void record(bool on) {
  recording = on;
}

// The copies that a kernel of this device makes on its way through the CPU are none of a GPU's.
struct Kernel {
  const bool was = recording;
  Kernel() { recording = false; }
  ~Kernel() { recording = was; }
};

// The same memory as a CPU tensor.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) {
    return tensor;
  }
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
  auto all = at::from_blob(tensor.storage().mutable_data(), {count}, tensor.options().device(at::kCPU));
  return all.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

at::Tensor here(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(HERE) : tensor;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  TORCH_CHECK(!recording || from.device() == to.device(), "a copy between devices in a recording");
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar value(const at::Tensor& tensor) {
  TORCH_CHECK(!recording, "a value is read in a recording");
  return on_cpu(tensor).item();
}

at::Tensor reshape_alias(const at::Tensor& tensor, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::as_strided_tensorimpl(tensor, size, stride, std::nullopt);
}

const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef symbolic, std::optional<at::MemoryFormat>) {
  const auto size = C10_AS_INTARRAYREF_SLOW(symbolic);
  const auto bytes = static_cast<size_t>((c10::multiply_integers(size) + tensor.storage_offset()) * tensor.itemsize());
  auto storage = tensor.storage();
  if (storage.nbytes() < bytes) {
    storage.set_data_ptr(memory.allocate(bytes));
    storage.set_nbytes(bytes);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return tensor;
}

at::Tensor& set(at::Tensor& tensor, at::Storage storage, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  auto* implementation = tensor.unsafeGetTensorImpl();
  implementation->set_storage_keep_dtype(std::move(storage));
  implementation->set_sizes_and_strides(size, stride, offset);
  return tensor;
}

at::Tensor convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    c10::IntArrayRef stride,
    c10::IntArrayRef padding,
    c10::IntArrayRef dilation,
    bool transposed,
    c10::IntArrayRef output_padding,
    int64_t groups) {
  const Kernel kernel;
  TORCH_CHECK(input.is_privateuseone() && weight.is_privateuseone(), "convolution: tensors on two devices");
  std::optional<at::Tensor> other;
  if (bias && bias->defined()) {
    other = on_cpu(*bias);
  }
  return here(at::convolution(
      on_cpu(input), on_cpu(weight), other, stride, padding, dilation, transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient,
    const at::Tensor& input,
    const at::Tensor& weight,
    c10::IntArrayRef stride,
    c10::IntArrayRef padding,
    c10::IntArrayRef dilation,
    bool transposed,
    c10::IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> wanted) {
  const Kernel kernel;
  at::OptionalIntArrayRef bias;
  if (wanted[2]) {
    bias = weight.sizes().slice(0, 1);
  }
  auto [a, b, c] = at::convolution_backward(
      on_cpu(gradient), on_cpu(input), on_cpu(weight), bias, stride, padding, dilation, transposed, output_padding,
      groups, wanted);
  return {here(a), here(b), here(c)};
}

std::optional<at::Tensor> other(const std::optional<at::Tensor>& tensor) {
  TORCH_CHECK(!tensor || !tensor->defined() || tensor->is_privateuseone(), "normalisation: tensors on two devices");
  return tensor && tensor->defined() ? std::optional(on_cpu(*tensor)) : std::nullopt;
}

// Its schema does not say that it changes the running statistics, so the fallback would not.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& mean,
    const std::optional<at::Tensor>& variance,
    bool training,
    double momentum,
    double epsilon) {
  const Kernel kernel;
  auto [a, b, c] = at::native_batch_norm(
      on_cpu(input), other(weight), other(bias), other(mean), other(variance), training, momentum, epsilon);
  return {here(a), here(b), here(c)};
}

// torch's own for such a device takes a view that inputs with channels last do not allow.
std::tuple<at::Tensor, at::Tensor, at::Tensor> group_norm(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    int64_t n,
    int64_t c,
    int64_t pixels,
    int64_t groups,
    double epsilon) {
  const Kernel kernel;
  auto [a, b, d] = at::native_group_norm(
      on_cpu(input), other(weight), other(bias), n, c, pixels, groups, epsilon);
  return {here(a), here(b), here(d)};
}

// Everything else runs on the CPU, unless tensors of both devices meet. As on a GPU, single values may, and indices.
void elsewhere(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const auto count = operation.schema().arguments().size();
  bool ours = false, theirs = false;
  const auto& name = operation.schema().name();
  static const std::set<std::string> waiting{
      "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
      "aten::bincount", "aten::repeat_interleave", "aten::argwhere", "aten::equal"};
  const bool sized_by_values = waiting.count(name) > 0;
  TORCH_CHECK(!(recording && sized_by_values), name, " waits for values in a recording");
  const auto look = [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      (tensor.is_privateuseone() ? ours : theirs) |= tensor.is_privateuseone() || tensor.dim() > 0;
    }
  };
  for (size_t i = 0; i < count; ++i) {
    const auto& argument = torch::jit::peek(*stack, i, count);
    if (argument.isTensor()) {
      look(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        look(tensor);
      }
    } else if (argument.isList()) {  // of optional tensors: indices
      for (const c10::IValue& index : argument.toListRef()) {
        if (index.isTensor() && index.toTensor().defined()) {
          const auto kind = index.toTensor().scalar_type();
          TORCH_CHECK(
              !(recording && (kind == at::kBool || kind == at::kByte)), name, " by a mask waits for values in a recording");
        }
      }
    }
  }
  TORCH_CHECK(!(ours && theirs), c10::toString(operation.operator_name()), ": tensors on two devices");
  const Kernel kernel;
  at::native::cpu_fallback(operation, stack, false, c10::DispatchKey::CPU);
}

}  // namespace

TORCH_LIBRARY(elsewhere, library) {
  library.def("record(bool on) -> ()", &record);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&elsewhere>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(value));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(reshape_alias));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set));
  library.impl("native_batch_norm", TORCH_FN(batch_norm));
  library.impl("native_group_norm", TORCH_FN(group_norm));
  library.impl("convolution_overrideable", TORCH_FN(convolution));
  library.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}
