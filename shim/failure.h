// The record behind dspark_last_error, for every file of the shim.
#pragma once

#include <exception>
#include <string>

namespace dspark {

// Records the message for the calling thread and returns 1.
int fail(const std::string& message);

// Runs `body` at the C boundary: 0, or 1 with the exception's text recorded.
template <class F>
int guarded(F&& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

} // namespace dspark
