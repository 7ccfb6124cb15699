// SmolLM2's step written by hand on the CPU kernels, without MLX, graph or FFI: what the product's step is measured
// against. Prints one line of JSON for each asked row count: {"rows":…,"cpu_ms":[…]} at a context of `context` tokens.
//
//   handmade MODEL.safetensors THREADS CONTEXT ROUNDS ROWS…
//
// `MODEL` is the conversion of the Q4_1 GGUF: affine 4 bit and 8 bit (table), groups of 32, float16 or float32 scales.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <stdexcept>

#include "float_bits.h"
#include "self_attention.h"

namespace {

using namespace dspark::cpu;

struct Tensor {
  FloatType type;
  const unsigned char* data;
};

// Names, types and places of a safetensors file's tensors, by the little of JSON that its header uses.
class Safetensors {
 public:
  explicit Safetensors(const char* path) {
    std::ifstream file(path, std::ios::binary);
    uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), 8);
    std::string header(length, ' ');
    file.read(header.data(), static_cast<std::streamsize>(length));
    file.seekg(0, std::ios::end);
    bytes_.resize(static_cast<size_t>(file.tellg()) - 8 - length);
    file.seekg(static_cast<std::streamoff>(8 + length));
    file.read(reinterpret_cast<char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
    for (size_t at = 0; (at = header.find("\"data_offsets\":", at)) != std::string::npos; at++) {
      const size_t open = header.rfind(":{", at), end = header.rfind('"', open), start = header.rfind('"', end - 1);
      const size_t offset = std::strtoull(header.c_str() + header.find('[', at) + 1, nullptr, 10);
      const std::string entry = header.substr(open, at - open);
      const FloatType type = entry.find("\"BF16\"") != std::string::npos  ? FloatType::bf16
                             : entry.find("\"F16\"") != std::string::npos ? FloatType::f16
                                                                          : FloatType::f32;
      tensors_[header.substr(start + 1, end - start - 1)] = {type, bytes_.data() + offset};
    }
  }
  const Tensor& operator[](const std::string& name) const {
    return tensors_.at(name);
  }

 private:
  std::vector<unsigned char> bytes_;
  std::map<std::string, Tensor> tensors_;
};

constexpr int kHidden = 576, kLayers = 30, kInner = 1536, kHeads = 9, kKvHeads = 3, kDim = 64, kVocab = 49152;
constexpr float kEps = 1e-5f;

struct Layer {
  Matrix q, k, v, o, gate, up, down;
  std::vector<float> norm, second_norm;
  KvStore store{KvShape{kKvHeads, kDim, KvFormat::f32, 0}};
};

class Model {
 public:
  Model(const Safetensors& file, Pool& threads) : table_(matrix(file, threads, "model.embed_tokens", kVocab, kHidden, 8)) {
    for (int i = 0; i < kLayers; i++) {
      const std::string at = "model.layers." + std::to_string(i) + ".";
      const auto layer = [&](const char* name, int rows, int columns) { return matrix(file, threads, at + name, rows, columns, 4); };
      layers_.push_back(std::unique_ptr<Layer>(new Layer{
          layer("self_attn.q_proj", kHidden, kHidden), layer("self_attn.k_proj", kKvHeads * kDim, kHidden),
          layer("self_attn.v_proj", kKvHeads * kDim, kHidden), layer("self_attn.o_proj", kHidden, kHidden),
          layer("mlp.gate_proj", kInner, kHidden), layer("mlp.up_proj", kInner, kHidden),
          layer("mlp.down_proj", kHidden, kInner), vector(file, at + "input_layernorm.weight"),
          vector(file, at + "post_attention_layernorm.weight")}));
    }
    norm_ = vector(file, "model.norm.weight");
    spec_.heads = kHeads;
    spec_.kv_heads = kKvHeads;
    spec_.dim = kDim;
    spec_.scale = 0.125f;
    spec_.rope_dims = kDim;
    for (int j = 0; j < kDim / 2; j++) {
      rates_.push_back(1 / std::pow(1e5, 2.0 * j / kDim));
    }
  }

  // Logits of the last `wanted` rows.
  void forward(const Context& context, const std::vector<int>& ids, int start, int wanted, std::vector<float>& logits) {
    const int rows = static_cast<int>(ids.size());
    std::vector<float> h(size_t(rows) * kHidden), next(h.size()), qkv(size_t(rows) * (kHeads + 2 * kKvHeads) * kDim),
        attended(h.size()), inner(size_t(rows) * kInner), rope(size_t(rows) * kDim);
    std::vector<int32_t> positions(rows);
    for (int m = 0; m < rows; m++) {
      positions[m] = start + m;
      unpack_row(table_, ids[m], h.data() + size_t(m) * kHidden);
    }
    rope_table(positions.data(), rows, rates_.data(), kDim / 2, 1, rope.data());
    const auto rows_of = [&](const std::vector<float>& x, size_t width) { return Rows{x.data(), width, rows}; };
    for (const auto& layer : layers_) {
      const Norm first{layer->norm.data(), kEps}, second{layer->second_norm.data(), kEps};
      multiply(context, rows_of(h, kHidden), &first, {&layer->q, &layer->k, &layer->v}, qkv.data());
      self_attention(context, spec_, {{layer->store.writable(start, start + rows), start, rows, 0}}, qkv.data(),
                     rope.data(), attended.data());
      multiply_add(context, rows_of(attended, kHidden), layer->o, rows_of(h, kHidden), next.data());
      gated_unit(context, rows_of(next, kHidden), second, layer->gate, layer->up, Activation::silu, inner.data());
      multiply_add(context, rows_of(inner, kInner), layer->down, rows_of(next, kHidden), h.data());
    }
    const Norm last{norm_.data(), kEps};
    logits.resize(size_t(wanted) * kVocab);
    multiply(context, rows_of(h, kHidden).part(rows - wanted, wanted), &last, {&table_, nullptr, nullptr}, logits.data());
  }

 private:
  static Matrix matrix(const Safetensors& file, Pool& threads, const std::string& name, int rows, int columns, int bits) {
    const Tensor& scales = file[name + ".scales"];
    Source source{file[name + ".weight"].data, scales.data, file[name + ".biases"].data, nullptr, rows, columns, 32, bits,
                  "affine", scales.type};
    return pack(source, threads);
  }
  static std::vector<float> vector(const Safetensors& file, const std::string& name) {
    const Tensor& tensor = file[name];
    std::vector<float> values(kHidden);
    for (int i = 0; i < kHidden; i++) {
      values[i] = to_float(tensor.data + i * size_of(tensor.type), tensor.type);
    }
    return values;
  }

  Matrix table_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<float> norm_;
  AttentionSpec spec_;
  std::vector<double> rates_;
};

double cpu_ms() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

std::vector<int> tokens(int count, int from) {
  std::vector<int> ids(count);
  for (int i = 0; i < count; i++) {
    ids[i] = 500 + (from + i) * 7919 % 40000;
  }
  return ids;
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: handmade MODEL.safetensors THREADS CONTEXT ROUNDS ROWS...\n");
    return 2;
  }
  Pool threads(std::atoi(argv[2]));
  Model model(Safetensors(argv[1]), threads);
  const Context context{kernels(), threads};
  const int length = std::atoi(argv[3]), rounds = std::atoi(argv[4]);
  std::vector<float> logits;
  for (int from = 0; from < length; from += 256) {
    model.forward(context, tokens(std::min(256, length - from), from), from, 1, logits);
  }
  std::map<int, std::vector<double>> times;
  for (int round = 0; round < rounds; round++) {
    for (int i = 5; i < argc; i++) {
      const int rows = std::atoi(argv[i]);
      for (int run = 0; run < 3; run++) {
        const double before = cpu_ms();
        model.forward(context, tokens(rows, 7), length, rows > 32 ? 1 : rows, logits);
        // The first run of a row count still fills caches for it.
        if (run > 0) {
          times[rows].push_back(cpu_ms() - before);
        }
      }
    }
  }
  for (const auto& [rows, values] : times) {
    std::printf("{\"rows\":%d,\"cpu_ms\":[", rows);
    for (size_t i = 0; i < values.size(); i++) {
      std::printf("%s%.3f", i == 0 ? "" : ",", values[i]);
    }
    std::printf("]}\n");
  }
}
