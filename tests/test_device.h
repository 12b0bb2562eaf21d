#ifndef QUIRE_TESTS_TEST_DEVICE_H_
#define QUIRE_TESTS_TEST_DEVICE_H_

namespace quire {

// Whether the environment has QUIRE_TEST_DEVICE=emulated: tests of the executor and of whole clusters then compute with
// the backend for GPUs, exact, on the emulated device, a thousand times slower. On the CPU without the variable;
// another value ends the program.
bool IsGpuEmulated();

}  // namespace quire

#endif  // QUIRE_TESTS_TEST_DEVICE_H_
