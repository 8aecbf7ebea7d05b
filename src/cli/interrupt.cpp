#include "cli/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace dak {

namespace {

constexpr int kInterruptedStatus = 130;  // 128 + SIGINT, as a shell reports it

enum class State { kOutside, kInside, kRequested };
std::atomic<State> state = State::kOutside;

}  // namespace

void take_interrupts() {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
    std::thread([interrupt] {
        for (;;) {
            int signal = 0;
            sigwait(&interrupt, &signal);
            State inside = State::kInside;
            if (!state.compare_exchange_strong(inside, State::kRequested)) {
                ::_exit(kInterruptedStatus);
            }
        }
    }).detach();
}

InterruptScope::InterruptScope() { state = State::kInside; }
InterruptScope::~InterruptScope() { state = State::kOutside; }
bool InterruptScope::requested() const { return state == State::kRequested; }

}  // namespace dak
