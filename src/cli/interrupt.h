#pragma once

#include "base/error.h"

namespace dak {

/// A run that the user ended before it was done. The program's exit status is then 130.
class Interrupted : public Error {
  public:
    using Error::Error;
};

/// From now on Ctrl-C ends the program at once with status 130, except inside an InterruptScope.
/// Call before any other thread is started: the signal is taken by a thread of its own and blocked
/// in all others, because code that oneDNN generates may use the stack pointer as a register, and
/// a handler's frame would then land in its data.
void take_interrupts();

/// While one of these lives, the first Ctrl-C is only noted; the second ends the program.
class InterruptScope {
  public:
    InterruptScope();
    ~InterruptScope();
    InterruptScope(const InterruptScope&) = delete;
    InterruptScope& operator=(const InterruptScope&) = delete;

    bool requested() const;
};

}  // namespace dak
