/* order.h: the order of a row of floats, for back ends that report many alternatives of a row.
 *
 * A pure function; any thread. It allocates nothing.
 */
#ifndef INFERD_ENGINE_DEVICE_ORDER_H
#define INFERD_ENGINE_DEVICE_ORDER_H

#include <stdint.h>

/* Fills ids[count] with the indices of values[count], those of the largest values first; of equal
 * values the lower indices first. spare[count] is scratch. No value may be NaN. count >= 0. */
void order_largest(const float *values, int32_t count, int32_t *ids, int32_t *spare);

#endif
