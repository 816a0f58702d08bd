// What torch asks of CUDA before it computes anything, for a build of torch without CUDA: one device,
// which is always the current one, and one stream. Nothing here computes.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

const c10::Device DEVICE(c10::DeviceType::CUDA, 0);
const c10::Stream STREAM(c10::Stream::DEFAULT, DEVICE);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return DEVICE; }
  c10::Device getDevice() const override { return DEVICE; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return STREAM; }
  c10::Stream exchangeStream(c10::Stream) const override { return STREAM; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  bool isPinnedPtr(const void*) const override { return false; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};

const Guard guard;
const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &guard);

}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)  // by this name torch finds them
}
